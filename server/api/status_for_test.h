#ifndef SERVER_API_STATUS_FOR_TEST_H_
#define SERVER_API_STATUS_FOR_TEST_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace megatrain {

// What a test's stub got, with its details as payloads, so that server/errors can read them.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace megatrain

#endif  // SERVER_API_STATUS_FOR_TEST_H_
