#include "server/api/status_for_test.h"

#include "absl/strings/cord.h"
#include "google/rpc/status.pb.h"

namespace megatrain {

absl::Status FromGrpcStatus(const grpc::Status& status) {
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  google::rpc::Status details;
  if (!converted.ok() && details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      converted.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return converted;
}

}  // namespace megatrain
