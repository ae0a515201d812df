#include "runtime/base/crc32c.h"

#include <isa-l.h>

#include <algorithm>

namespace megatrain {
namespace {

// Polynomials over GF(2), modulo that of CRC-32C, as the CRC has them: bit 31 is x^0.
constexpr uint32_t kReflectedPolynomial = 0x82F63B78u;
constexpr uint32_t kOne = 0x80000000u;

uint32_t TimesX(uint32_t value) {
  return (value & 1) != 0 ? (value >> 1) ^ kReflectedPolynomial : value >> 1;
}

uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    product ^= (a & bit) != 0 ? b : 0;
    b = TimesX(b);
  }
  return product;
}

// x^(8 * count), by squaring: what `count` bytes after a text do to its CRC.
uint32_t ShiftByBytes(int64_t count) {
  uint32_t power = kOne >> 8;  // x^8
  uint32_t shift = kOne;
  for (; count > 0; count >>= 1) {
    shift = (count & 1) != 0 ? Times(shift, power) : shift;
    power = Times(power, power);
  }
  return shift;
}

}  // namespace

uint32_t Crc32c(std::string_view data) { return ExtendCrc32c(0, data); }

uint32_t ExtendCrc32c(uint32_t crc, std::string_view data) {
  constexpr size_t kPieceBytes = size_t{1} << 30;  // isa-l takes an int
  crc = ~crc;
  for (size_t start = 0; start < data.size(); start += kPieceBytes) {
    const std::string_view piece = data.substr(start, kPieceBytes);
    // isa-l reads through a pointer that it declares mutable.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data()));
    crc = crc32_iscsi(bytes, static_cast<int>(piece.size()), crc);
  }
  return ~crc;
}

uint32_t CombineCrc32c(uint32_t first, uint32_t second, int64_t second_size_bytes) {
  return Times(ShiftByBytes(second_size_bytes), first) ^ second;
}

}  // namespace megatrain
