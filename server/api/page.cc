#include "server/api/page.h"

#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr int32_t kDefaultPageSize = 50;
constexpr int32_t kMaxPageSize = 1000;

// A token is a check sum of cursor and arguments, then the cursor; it protects from mistakes, not
// from forgery: a cursor shows nothing that the call itself would not.
constexpr size_t kCheckBytes = 8;

std::string Check(std::string_view cursor, std::string_view arguments) {
  std::string text(cursor);
  text += '\0';
  text += arguments;
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest.substr(0, kCheckBytes);
}

}  // namespace

absl::StatusOr<PageRequest> ParsePageRequest(int32_t page_size, std::string_view page_token,
                                             std::string_view arguments) {
  if (page_size < 0) {
    return InvalidFields({{"page_size", "is negative: take 0 for the default of 50"}});
  }
  PageRequest request;
  request.size = page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
  if (page_token.empty()) {
    return request;
  }
  std::string token;
  if (!absl::WebSafeBase64Unescape(absl::string_view(page_token.data(), page_token.size()),
                                   &token) ||
      token.size() <= kCheckBytes) {
    return InvalidFields({{"page_token", "is not one that this server gave"}});
  }
  request.cursor = token.substr(kCheckBytes);
  if (Check(request.cursor, arguments) != token.substr(0, kCheckBytes)) {
    return InvalidFields({{"page_token", "belongs to a call with other arguments"}});
  }
  return request;
}

std::string MakePageToken(std::string_view cursor, std::string_view arguments) {
  return absl::WebSafeBase64Escape(Check(cursor, arguments) + std::string(cursor));
}

}  // namespace megatrain
