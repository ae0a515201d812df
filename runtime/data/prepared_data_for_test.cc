#include "runtime/data/prepared_data_for_test.h"

#include <openssl/sha.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

template <typename Item>
std::string Bytes(const std::vector<Item>& items) {
  return {reinterpret_cast<const char*>(items.data()), items.size() * sizeof(Item)};
}

}  // namespace

std::vector<RowForTest> RandomRows(int64_t count, int64_t longest_tokens, int64_t vocab_size,
                                   uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<RowForTest> rows(count);
  for (RowForTest& row : rows) {
    const int64_t length = draw(2, longest_tokens);
    const int64_t first_trained = draw(1, length - 1);
    const int64_t first_token = draw(0, vocab_size - 1);
    for (int64_t i = 0; i < length; ++i) {
      row.tokens.push_back(static_cast<int32_t>((first_token + i % 3) % vocab_size));
      row.trained.push_back(i >= first_trained ? 1 : 0);
    }
  }
  return rows;
}

std::string HexSha256(const std::string& bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest);
}

std::string WritePreparedData(const std::string& name, const std::vector<RowForTest>& rows) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  std::vector<int64_t> offsets = {0};
  size_t longest = 0;
  for (const RowForTest& row : rows) {
    tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
    trained.insert(trained.end(), row.trained.begin(), row.trained.end());
    offsets.push_back(static_cast<int64_t>(tokens.size()));
    longest = std::max(longest, row.tokens.size());
  }
  nlohmann::json files;
  const auto write = [&](const std::string& file, const std::string& bytes) {
    std::ofstream(folder + "/" + file, std::ios::binary) << bytes;
    files[file] = {{"size_bytes", bytes.size()}, {"sha256", HexSha256(bytes)}};
  };
  write("tokens.bin", Bytes(tokens));
  write("trained.bin", Bytes(trained));
  write("rows.bin", Bytes(offsets));
  const nlohmann::json manifest = {
      {"format", 1},
      {"row_count", rows.size()},
      {"token_count", tokens.size()},
      {"trained_token_count", std::count(trained.begin(), trained.end(), 1)},
      {"longest_row_tokens", longest},
      {"fingerprint", HexSha256(Bytes(tokens))},
      {"files", files}};
  std::ofstream(folder + "/manifest.json") << manifest.dump();
  return folder;
}

}  // namespace megatrain
