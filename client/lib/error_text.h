// Errors as the API sends them, and as people read them.

#ifndef CLIENT_LIB_ERROR_TEXT_H_
#define CLIENT_LIB_ERROR_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace megatrain {

// One error in the words of the API's google.rpc details.
struct ErrorText {
  std::string what;                  // what failed
  std::vector<std::string> because;  // why, one line each; empty when `what` says it all
  std::string hint;                  // what to do; empty when nobody knows
  std::string reason;                // UPPER_SNAKE, for programs; empty when there is none
  std::string resource;              // such as "models/toy", when the error is about one
};

// The same code and message; each google.rpc detail is kept as a payload under its type URL. A call
// that the server cancelled is UNAVAILABLE: CANCELLED is an interruption here.
absl::Status StatusFromRpc(const grpc::Status& status);

// `status` with advice, in the place where a server would put it.
absl::Status WithHint(absl::Status status, std::string_view hint);

// `status` with the cause of it, one line, in the place where a server would put it.
absl::Status WithCause(absl::Status status, std::string_view cause);

// `status` with a reason of domain "megatrain", in the place where a server would put it.
absl::Status WithClientReason(absl::Status status, std::string_view reason);

ErrorText DescribeError(const absl::Status& status);

// A value of the error's metadata; empty when there is none.
std::string ErrorMetadata(const absl::Status& status, const std::string& key);

// How long the server asks to wait before the call is tried again; zero when it does not say.
absl::Duration RetryDelay(const absl::Status& status);

}  // namespace megatrain

#endif  // CLIENT_LIB_ERROR_TEXT_H_
