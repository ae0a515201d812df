// The way to one server: address, channel, deadlines, retries.

#ifndef CLIENT_LIB_CONNECTION_H_
#define CLIENT_LIB_CONNECTION_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/interruption.h"
#include "grpcpp/grpcpp.h"
#include "megatrain/v1/checkpoint_service.grpc.pb.h"
#include "megatrain/v1/dataset_service.grpc.pb.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/model_service.grpc.pb.h"
#include "megatrain/v1/server_service.grpc.pb.h"
#include "megatrain/v1/upload_service.grpc.pb.h"
#include "runtime/base/clock.h"

namespace megatrain {

// Where a server listens unless it is told otherwise.
inline constexpr char kDefaultAddress[] = "127.0.0.1:7443";

// The address to use: `flag`, else `environment` (MEGATRAIN_ADDRESS), else the default.
// INVALID_ARGUMENT unless it is `unix:/path` or `host:port`.
absl::StatusOr<std::string> ResolveAddress(std::string_view flag, std::string_view environment);

struct ConnectionOptions {
  std::string address;                                // of ResolveAddress
  absl::Duration timeout = absl::InfiniteDuration();  // for everything done through it
  int attempts = 4;                                   // of one call, the first included
  absl::Duration first_backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(5);
  // A server that says when to come back (its engine starts) is asked again for so long.
  absl::Duration patience = absl::Seconds(30);
};

enum class CallKind {
  kRead,       // 10 s
  kWrite,      // 30 s; the request carries a request_id or is idempotent by itself
  kLongWrite,  // 1 h: the server reads or writes whole files before it answers
};

// Makes its channel at once and connects with the first call. Every call has a deadline; one that
// ends in UNAVAILABLE is repeated with growing, jittered pauses, and no other one is. Thread-safe.
class Connection {
 public:
  // `clock` and `interruption` outlive the connection; an interruption ends the pauses.
  Connection(const ConnectionOptions& options, const Clock& clock,
             const Interruption& interruption);

  // connection.Call(CallKind::kRead, &v1::JobService::Stub::GetJob, request)
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(CallKind kind,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) {
    Response response;
    absl::Status status = Run(kind, [&](grpc::ClientContext& context) {
      return (stub<Stub>().*method)(&context, request, &response);
    });
    if (!status.ok()) {
      return status;
    }
    return response;
  }

  // For streams, which their users open and repeat by themselves.
  template <typename Stub>
  Stub& stub() {
    return *std::get<std::unique_ptr<Stub>>(stubs_);
  }

  const ConnectionOptions& options() const { return options_; }
  const Clock& clock() const { return clock_; }
  const Interruption& interruption() const { return interruption_; }

  // Left of the timeout over everything.
  absl::Duration Remaining() const;

  // CANCELLED after an interruption, DEADLINE_EXCEEDED after the timeout, else OK.
  absl::Status CheckContinue() const;

  // The pause before try `failures` + 1: doubles from `first`, at most `max`, from half of it at
  // random up.
  static absl::Duration Backoff(int failures, absl::Duration first, absl::Duration max);

  // A status of a call in words that say which server and what to do.
  absl::Status Explain(const absl::Status& status, absl::Duration waited) const;

 private:
  absl::Status Run(CallKind kind, const std::function<grpc::Status(grpc::ClientContext&)>& attempt);

  const ConnectionOptions options_;
  const Clock& clock_;
  const Interruption& interruption_;
  const absl::Duration start_;  // on the monotonic clock
  std::shared_ptr<grpc::Channel> channel_;
  std::tuple<std::unique_ptr<v1::CheckpointService::Stub>,
             std::unique_ptr<v1::DatasetService::Stub>, std::unique_ptr<v1::JobService::Stub>,
             std::unique_ptr<v1::ModelService::Stub>, std::unique_ptr<v1::ServerService::Stub>,
             std::unique_ptr<v1::UploadService::Stub>>
      stubs_;
};

}  // namespace megatrain

#endif  // CLIENT_LIB_CONNECTION_H_
