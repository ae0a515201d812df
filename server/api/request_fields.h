// Rules that fields of several requests share: each adds a violation when it is broken.

#ifndef SERVER_API_REQUEST_FIELDS_H_
#define SERVER_API_REQUEST_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/api/page.h"
#include "server/errors/errors.h"

namespace megatrain {

// An ID that a client chose.
void RequireId(const std::string& field, const std::string& id,
               std::vector<FieldViolation>& violations);

// A name of one of the forms, such as "models/*" and "models/*/versions/*".
void RequireName(const std::string& field, const std::string& name,
                 const std::vector<std::string>& forms, std::vector<FieldViolation>& violations);

void RequireRequestId(const std::string& request_id, std::vector<FieldViolation>& violations);

// The number after which a page starts, as the list gave it in `cursor`; 0: the first page.
absl::StatusOr<int64_t> NumberOfCursor(const PageRequest& page);

// Answers a list of resources: moves at most `page.size` messages of `found`, which was asked for
// one more than that, by `add`, and returns the token of the next page.
template <typename Found, typename Add>
std::string FillPage(Found& found, const PageRequest& page, const std::string& arguments,
                     const Add& add) {
  const auto count = static_cast<size_t>(page.size);
  for (size_t i = 0; i < found.size() && i < count; ++i) {
    add(std::move(found[i].message));
  }
  return found.size() > count ? MakePageToken(std::to_string(found[count - 1].number), arguments)
                              : "";
}

}  // namespace megatrain

#endif  // SERVER_API_REQUEST_FIELDS_H_
