// Runs unary handlers of the callback API: on an executor, with a deadline, always finished.

#ifndef SERVER_API_UNARY_CALLS_H_
#define SERVER_API_UNARY_CALLS_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <climits>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/clock.h"
#include "server/executor/executor.h"

namespace megatrain {

// Thread-safe. Handlers may block. A call without a deadline gets one of 30 s; one that is
// cancelled or late is finished at once, and its handler's answer is dropped: so handlers own
// copies of what they use. The executor outlives the server.
class UnaryCalls {
 public:
  // More than `waiting_limit` calls that wait for a thread are refused with UNAVAILABLE.
  UnaryCalls(Executor& executor, const Clock& clock, int waiting_limit = INT_MAX)
      : executor_(executor), clock_(clock), waiting_limit_(waiting_limit) {}

  // Return the result from the service's method. `handle` gives an absl::StatusOr<Response>. One
  // that takes long takes a const ByteProgress&, whose error ends it: nobody waits for the answer
  // any more.
  template <typename Response, typename Handle>
  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context, Response* response,
                                 Handle handle) {
    return Start(context, response,
                 [handle = std::move(handle)](google::protobuf::Message& result,
                                              const ByteProgress& progress) {
                   absl::StatusOr<Response> answer = Answer<Response>(handle, progress);
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
                [state = state_, handle = std::move(handle)](
                    const ByteProgress& progress) -> absl::StatusOr<Response> {
                  if (state->draining) {
                    return Draining();
                  }
                  return Answer<Response>(handle, progress);
                });
  }

  // From now on, mutations are refused.
  void Drain() { state_->draining = true; }

  // The same, and long handlers end soon with UNAVAILABLE.
  void Stop();

  // OK, or the UNAVAILABLE that mutations get while the server drains.
  absl::Status CheckOpen() const { return state_->draining ? Draining() : absl::OkStatus(); }

  Executor& executor() const { return executor_; }

 private:
  class Call;
  // Work on the executor can outlive this.
  struct State {
    std::atomic<int> waiting_count = 0;
    std::atomic<bool> draining = false;
    std::atomic<bool> stopping = false;
  };
  using Work =
      std::function<absl::Status(google::protobuf::Message& result, const ByteProgress& progress)>;

  template <typename Response, typename Handle>
  static absl::StatusOr<Response> Answer(const Handle& handle, const ByteProgress& progress) {
    if constexpr (std::is_invocable_v<const Handle&, const ByteProgress&>) {
      return handle(progress);
    } else {
      return handle();
    }
  }

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context,
                                  google::protobuf::Message* response, Work work);
  static absl::Status Run(const State& state, Call& call, const Work& work,
                          google::protobuf::Message& result);
  static absl::Status Draining();

  Executor& executor_;
  const Clock& clock_;
  const int waiting_limit_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace megatrain

#endif  // SERVER_API_UNARY_CALLS_H_
