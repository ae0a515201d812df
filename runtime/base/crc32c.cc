#include "runtime/base/crc32c.h"

#include <isa-l.h>

#include <algorithm>

namespace megatrain {

uint32_t Crc32c(std::string_view data) {
  constexpr size_t kPieceBytes = size_t{1} << 30;  // isa-l takes an int
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t start = 0; start < data.size(); start += kPieceBytes) {
    const std::string_view piece = data.substr(start, kPieceBytes);
    // isa-l reads through a pointer that it declares mutable.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data()));
    crc = crc32_iscsi(bytes, static_cast<int>(piece.size()), crc);
  }
  return ~crc;
}

}  // namespace megatrain
