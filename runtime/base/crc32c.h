#ifndef RUNTIME_BASE_CRC32C_H_
#define RUNTIME_BASE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace megatrain {

// CRC-32C (Castagnoli) of `data`, as RFC 3720 defines it.
uint32_t Crc32c(std::string_view data);

// That of what `crc` is of, followed by `data`; of nothing it is 0.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view data);

// That of two texts, one after the other, from theirs and the second one's size.
uint32_t CombineCrc32c(uint32_t first, uint32_t second, int64_t second_size_bytes);

}  // namespace megatrain

#endif  // RUNTIME_BASE_CRC32C_H_
