// absl::Status to grpc::Status: the one place.

#ifndef SERVER_API_STATUS_CONVERSION_H_
#define SERVER_API_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace megatrain {

// Code, message and details of server/errors. An error always carries an ErrorInfo: one without a
// reason gets its code's name. INTERNAL and UNKNOWN keep their message: it names no secret.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace megatrain

#endif  // SERVER_API_STATUS_CONVERSION_H_
