#include "server/names/resource_name.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsVersion(std::string_view text) {
  return !text.empty() && text.size() <= 18 && text[0] != '0' &&
         std::all_of(text.begin(), text.end(), IsDigit);
}

std::vector<std::string_view> SplitPath(std::string_view path) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (true) {
    const size_t slash = path.find('/', begin);
    parts.push_back(path.substr(begin, slash - begin));
    if (slash == std::string_view::npos) {
      return parts;
    }
    begin = slash + 1;
  }
}

}  // namespace

bool IsResourceId(std::string_view id) {
  return !id.empty() && id.size() <= 63 && IsLower(id.front()) && id.back() != '-' &&
         std::all_of(id.begin(), id.end(),
                     [](char c) { return IsLower(c) || IsDigit(c) || c == '-'; });
}

std::optional<std::vector<std::string>> MatchResourceName(std::string_view pattern,
                                                          std::string_view name) {
  const std::vector<std::string_view> wanted = SplitPath(pattern);
  const std::vector<std::string_view> parts = SplitPath(name);
  if (wanted.size() != parts.size()) {
    return std::nullopt;
  }
  std::vector<std::string> matched;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "*") {
      if (wanted[i] != parts[i]) {
        return std::nullopt;
      }
      continue;
    }
    const bool is_version = i > 0 && wanted[i - 1] == "versions";
    if (is_version ? !IsVersion(parts[i]) : !IsResourceId(parts[i])) {
      return std::nullopt;
    }
    matched.emplace_back(parts[i]);
  }
  return matched;
}

std::string NewUid() {
  std::array<unsigned char, 16> bytes;
  MT_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;  // version 4 (RFC 4122, section 4.4)
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  static constexpr char kHex[] = "0123456789abcdef";
  std::string uid;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      uid += '-';
    }
    uid += kHex[bytes[i] >> 4];
    uid += kHex[bytes[i] & 0x0f];
  }
  return uid;
}

std::string NewResourceId(std::string_view prefix) {
  // 8 of 32 signs, 40 bits: a chance of 1e-6 that two of a thousand are equal, and the store
  // refuses a name that is taken. No vowels but e and u, no l, 0, 1: neither words nor confusion.
  static constexpr char kSigns[] = "bcdefghjkmnpqrstuvwxyz2345678923";
  std::array<unsigned char, 8> bytes;
  MT_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);
  std::string id = std::string(prefix) + "-";
  for (const unsigned char byte : bytes) {
    id += kSigns[byte % 32];
  }
  return id;
}

}  // namespace megatrain
