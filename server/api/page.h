// Pages of List calls: sizes and opaque tokens that belong to one list of arguments.

#ifndef SERVER_API_PAGE_H_
#define SERVER_API_PAGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

// A page that was asked for.
struct PageRequest {
  int size = 0;        // 1 to 1000
  std::string cursor;  // empty: the first page; else as MakePageToken got it
};

// `arguments` are all other arguments of the call, in a fixed form: a token of other ones is
// INVALID_ARGUMENT, as are a negative size and a token that is none.
absl::StatusOr<PageRequest> ParsePageRequest(int32_t page_size, std::string_view page_token,
                                             std::string_view arguments);

// The token of the page that starts after `cursor`.
std::string MakePageToken(std::string_view cursor, std::string_view arguments);

}  // namespace megatrain

#endif  // SERVER_API_PAGE_H_
