// Errors with what programs read in them: a reason, its values, the fields that are wrong.
// The daemon's domain classes make them; server/api puts them into gRPC's trailers as they are.

#ifndef SERVER_ERRORS_ERRORS_H_
#define SERVER_ERRORS_ERRORS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace megatrain {

// `status` with a google.rpc.ErrorInfo of domain "megatrain". `reason` is UPPER_SNAKE, at most 63
// characters; every varying word of the message stands in `metadata` too.
absl::Status WithReason(absl::Status status, std::string_view reason,
                        const std::map<std::string, std::string>& metadata = {});

// It says nothing against what was asked for: disk, memory or something else was in the way, and
// the same can succeed once that is seen to.
bool CanPass(const absl::Status& status);

// The reason of `status`, or "" when it has none.
std::string ReasonOf(const absl::Status& status);

// One wrong field of a request.
struct FieldViolation {
  std::string field;        // path in the request, such as "spec.train.epochs"
  std::string description;  // what is wrong and what would be right
};

// INVALID_ARGUMENT with every violation; OK when there is none.
absl::Status InvalidFields(const std::vector<FieldViolation>& violations);

// NOT_FOUND of a resource such as "datasets/addition".
absl::Status ResourceNotFound(std::string_view name);

// ALREADY_EXISTS of a resource.
absl::Status ResourceExists(std::string_view name);

// FAILED_PRECONDITION: `subject` (a resource) is not in a state in which this can be done.
absl::Status PreconditionFailed(std::string_view subject, std::string_view reason,
                                std::string_view message,
                                const std::map<std::string, std::string>& metadata = {});

// UNAVAILABLE: the same request can succeed after `delay`.
absl::Status RetryLater(std::string_view reason, std::string_view message, absl::Duration delay);

}  // namespace megatrain

#endif  // SERVER_ERRORS_ERRORS_H_
