#include "client/lib/error_text.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace megatrain {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/";

template <typename Detail>
std::string TypeUrl() {
  return kTypePrefix + Detail::descriptor()->full_name();
}

// The detail of `status`; an empty one when it has none that can be read.
template <typename Detail>
Detail DetailOf(const absl::Status& status) {
  Detail detail;
  const auto payload = status.GetPayload(TypeUrl<Detail>());
  if (payload.has_value() && !detail.ParseFromString(std::string(*payload))) {
    detail.Clear();
  }
  return detail;
}

template <typename Detail>
void Attach(absl::Status& status, const Detail& detail) {
  status.SetPayload(TypeUrl<Detail>(), absl::Cord(detail.SerializeAsString()));
}

void DescribeFields(const google::rpc::BadRequest& bad_request, ErrorText& text) {
  if (bad_request.field_violations_size() < 2) {
    return;  // the message has named the only one
  }
  text.what = absl::StrCat(bad_request.field_violations_size(), " fields are wrong");
  for (const auto& violation : bad_request.field_violations()) {
    text.because.push_back(absl::StrCat(violation.field(), ": ", violation.description()));
  }
}

}  // namespace

absl::Status StatusFromRpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (absl::IsCancelled(result)) {
    // Who cancels a call here does not ask how it ended, so the server did, as it does when it
    // stops.
    result = absl::UnavailableError(absl::StrCat(
        "the server ended the call", result.message().empty() ? "" : ": ", result.message()));
  }
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.details()) {
      result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return result;
}

absl::Status WithHint(absl::Status status, std::string_view hint) {
  google::rpc::Help help;
  help.add_links()->set_description(std::string(hint));
  Attach(status, help);
  return status;
}

absl::Status WithCause(absl::Status status, std::string_view cause) {
  google::rpc::PreconditionFailure failure;
  failure.add_violations()->set_description(std::string(cause));
  Attach(status, failure);
  return status;
}

absl::Status WithClientReason(absl::Status status, std::string_view reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain("megatrain");
  Attach(status, info);
  return status;
}

ErrorText DescribeError(const absl::Status& status) {
  ErrorText text;
  text.what = std::string(status.message());
  if (text.what.empty()) {
    text.what = absl::StatusCodeToString(status.code());
  }
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  text.reason = info.reason();
  const auto hint = info.metadata().find("hint");
  text.hint = hint == info.metadata().end() ? "" : hint->second;
  const auto help = DetailOf<google::rpc::Help>(status);
  for (const auto& link : help.links()) {
    text.hint = link.description();
  }
  text.resource = DetailOf<google::rpc::ResourceInfo>(status).resource_name();
  DescribeFields(DetailOf<google::rpc::BadRequest>(status), text);
  const auto failure = DetailOf<google::rpc::PreconditionFailure>(status);
  for (const auto& violation : failure.violations()) {
    if (violation.description() != text.what) {
      text.because.push_back(violation.description());
    }
  }
  return text;
}

std::string ErrorMetadata(const absl::Status& status, const std::string& key) {
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  const auto found = info.metadata().find(key);
  return found == info.metadata().end() ? "" : found->second;
}

absl::Duration RetryDelay(const absl::Status& status) {
  const auto delay = DetailOf<google::rpc::RetryInfo>(status).retry_delay();
  return absl::Seconds(delay.seconds()) + absl::Nanoseconds(delay.nanos());
}

}  // namespace megatrain
