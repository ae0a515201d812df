#ifndef RUNTIME_BASE_CRC32C_H_
#define RUNTIME_BASE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace megatrain {

// CRC-32C (Castagnoli) of `data`, as RFC 3720 defines it.
uint32_t Crc32c(std::string_view data);

}  // namespace megatrain

#endif  // RUNTIME_BASE_CRC32C_H_
