#include "server/api/request_fields.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/names/resource_name.h"

namespace megatrain {
namespace {

constexpr size_t kMaxRequestIdBytes = 64;

}  // namespace

void RequireId(const std::string& field, const std::string& id,
               std::vector<FieldViolation>& violations) {
  if (!IsResourceId(id)) {
    violations.push_back({field, absl::StrCat("\"", id, "\" is no ID: ", kResourceIdRule)});
  }
}

void RequireName(const std::string& field, const std::string& name,
                 const std::vector<std::string>& forms, std::vector<FieldViolation>& violations) {
  const bool matches = std::any_of(forms.begin(), forms.end(), [&name](const std::string& form) {
    return MatchResourceName(form, name).has_value();
  });
  if (!matches) {
    violations.push_back(
        {field, absl::StrCat("\"", name, "\" is no name of the form ", absl::StrJoin(forms, " or "),
                             ": an ID is ", kResourceIdRule)});
  }
}

void RequireRequestId(const std::string& request_id, std::vector<FieldViolation>& violations) {
  if (request_id.size() > kMaxRequestIdBytes) {
    violations.push_back({"request_id", "is longer than 64 bytes: take a UUID"});
  }
}

absl::StatusOr<int64_t> NumberOfCursor(const PageRequest& page) {
  int64_t number = 0;
  if (!page.cursor.empty() && !absl::SimpleAtoi(page.cursor, &number)) {
    return InvalidFields({{"page_token", "is not one that this server gave"}});
  }
  return number;
}

}  // namespace megatrain
