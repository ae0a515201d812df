// Runs unary handlers of the callback API: on an executor, with a deadline, always finished.

#ifndef SERVER_API_UNARY_CALLS_H_
#define SERVER_API_UNARY_CALLS_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "server/executor/executor.h"

namespace megatrain {

// Thread-safe. Handlers may block. A call without a deadline gets one of 30 s; one that is
// cancelled or late is finished at once, and its handler's answer is dropped: so handlers own
// copies of what they use. The executor outlives the server.
class UnaryCalls {
 public:
  UnaryCalls(Executor& executor, const Clock& clock) : executor_(executor), clock_(clock) {}

  // Return the result from the service's method. `handle` gives an absl::StatusOr<Response>.
  template <typename Response, typename Handle>
  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context, Response* response,
                                 Handle handle) {
    return Start(context, response,
                 [handle = std::move(handle)](google::protobuf::Message& result) {
                   absl::StatusOr<Response> answer = handle();
                   if (answer.ok()) {
                     static_cast<Response&>(result) = *std::move(answer);
                   }
                   return answer.status();
                 });
  }

  // The same for a call that changes something: refused with UNAVAILABLE while the server drains.
  template <typename Response, typename Handle>
  grpc::ServerUnaryReactor* Mutate(grpc::CallbackServerContext* context, Response* response,
                                   Handle handle) {
    return Read(context, response,
                [this, handle = std::move(handle)]() -> absl::StatusOr<Response> {
                  if (absl::Status open = CheckOpen(); !open.ok()) {
                    return open;
                  }
                  return handle();
                });
  }

  // From now on, mutations are refused.
  void Drain() { draining_ = true; }

  // OK, or the UNAVAILABLE that mutations get while the server drains.
  absl::Status CheckOpen() const;

  Executor& executor() const { return executor_; }

 private:
  using Work = std::function<absl::Status(google::protobuf::Message& result)>;

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context,
                                  google::protobuf::Message* response, Work work);

  Executor& executor_;
  const Clock& clock_;
  std::atomic<bool> draining_ = false;
};

}  // namespace megatrain

#endif  // SERVER_API_UNARY_CALLS_H_
