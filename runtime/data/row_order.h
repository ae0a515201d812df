#ifndef RUNTIME_DATA_ROW_ORDER_H_
#define RUNTIME_DATA_ROW_ORDER_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace megatrain {

// The order in which an epoch (from 0) meets the rows: each of [0, row_count) once. A pure
// function of its arguments, the same on every machine and in every version: the first 8 bytes
// (little-endian) of SHA-256 over "fingerprint:seed:epoch" in decimal start a SplitMix64
// generator, and Fisher-Yates draws from it downwards, each index without bias by rejection.
std::vector<int64_t> RowOrder(int64_t row_count, int64_t seed, int64_t epoch,
                              std::string_view fingerprint);

}  // namespace megatrain

#endif  // RUNTIME_DATA_ROW_ORDER_H_
