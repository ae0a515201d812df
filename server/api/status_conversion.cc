#include "server/api/status_conversion.h"

#include <string>

#include "absl/strings/cord.h"
#include "google/rpc/status.pb.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

// Messages and details travel in trailers, which gRPC limits to 8 KiB by default.
constexpr size_t kMaxMessageBytes = 2048;
constexpr size_t kMaxDetailsBytes = 4096;

std::string Shortened(std::string text) {
  if (text.size() > kMaxMessageBytes) {
    size_t end = kMaxMessageBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
      --end;  // never within a character of UTF-8
    }
    text.resize(end);
    text += " ...";
  }
  return text;
}

bool IsErrorInfo(absl::string_view type_url) {
  return type_url == "type.googleapis.com/google.rpc.ErrorInfo";
}

std::string Details(const absl::Status& status, const std::string& message) {
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  // The ErrorInfo first, then what still fits.
  for (const bool error_info : {true, false}) {
    status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
      if (IsErrorInfo(type_url) != error_info ||
          (!error_info && details.ByteSizeLong() + payload.size() > kMaxDetailsBytes)) {
        return;
      }
      google::protobuf::Any* detail = details.add_details();
      detail->set_type_url(std::string(type_url));
      detail->set_value(std::string(payload));
    });
  }
  return details.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  const absl::Status complete = ReasonOf(status).empty()
                                    ? WithReason(status, absl::StatusCodeToString(status.code()))
                                    : status;
  const std::string message = Shortened(std::string(status.message()));
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      Details(complete, message));
}

}  // namespace megatrain
