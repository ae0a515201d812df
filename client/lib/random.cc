#include "client/lib/random.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

using UuidBytes = std::array<unsigned char, 16>;

std::string FormatUuid(UuidBytes bytes, int version) {
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0F) | (version << 4));
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3F) | 0x80);  // RFC 9562's variant
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace

std::string NewRequestId() {
  UuidBytes bytes;
  MT_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return FormatUuid(bytes, 4);
}

std::string RequestIdFor(std::string_view content) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), digest);
  UuidBytes bytes;
  std::memcpy(bytes.data(), digest, bytes.size());
  return FormatUuid(bytes, 8);
}

double RandomFraction() {
  uint32_t bits = 0;
  MT_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&bits), sizeof(bits)) == 1);
  return static_cast<double>(bits) / 4294967296.0;
}

}  // namespace megatrain
