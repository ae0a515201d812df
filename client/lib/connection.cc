#include "client/lib/connection.h"

#include <sys/un.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/lib/error_text.h"
#include "client/lib/random.h"

namespace megatrain {
namespace {

absl::Duration TimeLimit(CallKind kind) {
  switch (kind) {
    case CallKind::kRead:
      return absl::Seconds(10);
    case CallKind::kWrite:
      return absl::Seconds(30);
    case CallKind::kLongWrite:
      return absl::Hours(1);
  }
  return absl::ZeroDuration();
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  // Pings go out only while a stream is open, and not more often than the server allows.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  // So that a laptop that wakes up is back at once.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  // A proxy for web pages is no way to a server on loopback or in a private network.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

bool IsHostAndPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  return colon != std::string::npos && colon > 0 &&
         absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port < 65'536;
}

// The system takes no longer path of a socket.
bool IsSocketPath(const std::string& address) {
  constexpr absl::string_view kScheme = "unix:";
  return absl::StartsWith(address, "unix:/") &&
         address.size() - kScheme.size() < sizeof(sockaddr_un::sun_path);
}

}  // namespace

absl::StatusOr<std::string> ResolveAddress(std::string_view flag, std::string_view environment) {
  const std::string address(!flag.empty()          ? flag
                            : !environment.empty() ? environment
                                                   : kDefaultAddress);
  if (!IsSocketPath(address) && !IsHostAndPort(address)) {
    return WithClientReason(
        WithHint(absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is no address")),
                 "host:port, or unix:/path of the server's socket, of at most 107 characters"),
        "INVALID_ADDRESS");
  }
  return address;
}

Connection::Connection(const ConnectionOptions& options, const Clock& clock,
                       const Interruption& interruption)
    : options_(options),
      clock_(clock),
      interruption_(interruption),
      start_(clock.MonotonicNow()),
      channel_(MakeChannel(options.address)),
      stubs_(v1::CheckpointService::NewStub(channel_), v1::DatasetService::NewStub(channel_),
             v1::JobService::NewStub(channel_), v1::ModelService::NewStub(channel_),
             v1::ServerService::NewStub(channel_), v1::UploadService::NewStub(channel_)) {}

absl::Duration Connection::Remaining() const {
  return options_.timeout - (clock_.MonotonicNow() - start_);
}

absl::Status Connection::CheckContinue() const {
  if (interruption_.triggered()) {
    return absl::CancelledError("interrupted");
  }
  if (Remaining() <= absl::ZeroDuration()) {
    return WithClientReason(absl::DeadlineExceededError(absl::StrCat(
                                "not done within ", absl::FormatDuration(options_.timeout))),
                            "TIMEOUT");
  }
  return absl::OkStatus();
}

absl::Duration Connection::Backoff(int failures, absl::Duration first, absl::Duration max) {
  absl::Duration pause = first;
  for (int i = 1; i < failures && pause < max; ++i) {
    pause *= 2;
  }
  return std::min(pause, max) * (0.5 + RandomFraction() / 2);
}

absl::Status Connection::Explain(const absl::Status& status, absl::Duration waited) const {
  if (status.ok() || !DescribeError(status).reason.empty()) {
    return status;  // the server has said it in its own words
  }
  if (status.code() == absl::StatusCode::kUnavailable) {
    return WithClientReason(
        WithHint(WithCause(absl::UnavailableError(
                               absl::StrCat("cannot reach a server at ", options_.address)),
                           std::string(status.message())),
                 "start megatraind, or name its address by --address or MEGATRAIN_ADDRESS"),
        "SERVER_UNREACHABLE");
  }
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    return WithClientReason(WithHint(absl::DeadlineExceededError(
                                         absl::StrCat("no answer from ", options_.address,
                                                      " within ", absl::FormatDuration(waited))),
                                     "megatrain server shows whether it is alive"),
                            "NO_ANSWER");
  }
  return status;
}

absl::Status Connection::Run(CallKind kind,
                             const std::function<grpc::Status(grpc::ClientContext&)>& attempt) {
  const absl::Duration begin = clock_.MonotonicNow();
  for (int failures = 0;;) {
    if (absl::Status going_on = CheckContinue(); !going_on.ok()) {
      return going_on;
    }
    const absl::Duration limit = std::min(TimeLimit(kind), Remaining());
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(clock_.WallNow() + limit));
    const absl::Status status = StatusFromRpc(attempt(context));
    ++failures;
    const absl::Duration asked_pause = RetryDelay(status);
    const bool may_repeat = asked_pause > absl::ZeroDuration()
                                ? clock_.MonotonicNow() - begin < options_.patience
                                : failures < options_.attempts;
    if (status.code() != absl::StatusCode::kUnavailable || !may_repeat) {
      return Explain(status, limit);
    }
    const absl::Duration pause =
        std::max(Backoff(failures, options_.first_backoff, options_.max_backoff),
                 std::min(asked_pause, options_.max_backoff));
    interruption_.WaitFor(std::min(pause, Remaining()));
  }
}

}  // namespace megatrain
