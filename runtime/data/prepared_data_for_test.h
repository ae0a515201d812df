// For tests: writes folders of prepared data.

#ifndef RUNTIME_DATA_PREPARED_DATA_FOR_TEST_H_
#define RUNTIME_DATA_PREPARED_DATA_FOR_TEST_H_

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

struct RowForTest {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
};

// `count` rows of 2 to longest_tokens tokens below vocab_size; each row's tokens repeat a short
// pattern, so that a model can learn them. At least the last token of a row is trained.
std::vector<RowForTest> RandomRows(int64_t count, int64_t longest_tokens, int64_t vocab_size,
                                   uint32_t seed);

// A new folder `name` in the test's temporary folder, with `rows` in it. Returns its path.
std::string WritePreparedData(const std::string& name, const std::vector<RowForTest>& rows);

// Lower-case hex SHA-256.
std::string HexSha256(const std::string& bytes);

}  // namespace megatrain

#endif  // RUNTIME_DATA_PREPARED_DATA_FOR_TEST_H_
