#include "server/errors/errors.h"

#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace megatrain {
namespace {

template <typename Message>
std::string TypeUrl() {
  return "type.googleapis.com/" + Message::descriptor()->full_name();
}

template <typename Message>
void Attach(absl::Status& status, const Message& detail) {
  status.SetPayload(TypeUrl<Message>(), absl::Cord(detail.SerializeAsString()));
}

absl::Status WithResource(absl::Status status, std::string_view name, std::string_view reason) {
  google::rpc::ResourceInfo info;
  const std::string full_name(name);
  info.set_resource_type(full_name.substr(0, full_name.find('/')));
  info.set_resource_name(full_name);
  Attach(status, info);
  return WithReason(std::move(status), reason, {{"resource", full_name}});
}

}  // namespace

absl::Status WithReason(absl::Status status, std::string_view reason,
                        const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain("megatrain");
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  Attach(status, info);
  return status;
}

bool CanPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnknown:  // of the system's errors, EIO
      return true;
    default:
      return false;
  }
}

std::string ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(TypeUrl<google::rpc::ErrorInfo>());
  google::rpc::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) {
    return "";
  }
  return info.reason();
}

absl::Status InvalidFields(const std::vector<FieldViolation>& violations) {
  if (violations.empty()) {
    return absl::OkStatus();
  }
  google::rpc::BadRequest bad_request;
  std::string message;
  for (const FieldViolation& violation : violations) {
    google::rpc::BadRequest::FieldViolation* added = bad_request.add_field_violations();
    added->set_field(violation.field);
    added->set_description(violation.description);
    absl::StrAppend(&message, message.empty() ? "" : "; ", violation.field, ": ",
                    violation.description);
  }
  absl::Status status = absl::InvalidArgumentError(message);
  Attach(status, bad_request);
  return WithReason(std::move(status), "INVALID_FIELDS", {{"field", violations.front().field}});
}

absl::Status ResourceNotFound(std::string_view name) {
  return WithResource(absl::NotFoundError(absl::StrCat(std::string(name), " does not exist")), name,
                      "RESOURCE_NOT_FOUND");
}

absl::Status ResourceExists(std::string_view name) {
  return WithResource(
      absl::AlreadyExistsError(absl::StrCat(std::string(name), " exists already: take another ID")),
      name, "RESOURCE_EXISTS");
}

absl::Status PreconditionFailed(std::string_view subject, std::string_view reason,
                                std::string_view message,
                                const std::map<std::string, std::string>& metadata) {
  const std::string text(message);
  google::rpc::PreconditionFailure failure;
  google::rpc::PreconditionFailure::Violation* violation = failure.add_violations();
  violation->set_type(std::string(reason));
  violation->set_subject(std::string(subject));
  violation->set_description(text);
  absl::Status status = absl::FailedPreconditionError(text);
  Attach(status, failure);
  std::map<std::string, std::string> all = metadata;
  all.emplace("subject", std::string(subject));
  return WithReason(std::move(status), reason, all);
}

absl::Status RetryLater(std::string_view reason, std::string_view message, absl::Duration delay) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(delay));
  retry.mutable_retry_delay()->set_nanos(static_cast<int>(
      (delay - absl::Seconds(absl::ToInt64Seconds(delay))) / absl::Nanoseconds(1)));
  absl::Status status = absl::UnavailableError(std::string(message));
  Attach(status, retry);
  return WithReason(std::move(status), reason);
}

}  // namespace megatrain
