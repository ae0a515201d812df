#include "server/api/unary_calls.h"

#include <grpcpp/alarm.h>

#include <chrono>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "server/api/status_conversion.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr absl::Duration kDefaultDeadline = absl::Seconds(30);
constexpr absl::Duration kDrainRetryDelay = absl::Seconds(30);
constexpr absl::Duration kBusyRetryDelay = absl::Seconds(10);

}  // namespace

// One call. gRPC, the handler and the alarm each may end it; the first one does.
class UnaryCalls::Call final : public grpc::ServerUnaryReactor {
 public:
  explicit Call(google::protobuf::Message* response) : response_(response) {}

  // Keeps the object alive until gRPC is done with it.
  void HoldUntilDone(std::shared_ptr<Call> self) { self_ = std::move(self); }

  // `alarm_` holds a reference, so gRPC cannot be done before the alarm is cancelled in OnDone.
  void SetDeadline(absl::Time deadline, std::weak_ptr<Call> self) {
    alarm_.Set(absl::ToChronoTime(deadline), [self](bool fired) {
      const std::shared_ptr<Call> call = self.lock();
      if (fired && call != nullptr) {
        call->End(absl::DeadlineExceededError(
            "the call came without a deadline and did not end within 30 s"));
      }
    });
  }

  // Still wanted: nobody has ended it.
  bool Open() {
    MutexLock lock(&mutex_);
    return !ended_;
  }

  // Ends the call with `result`, unless it has ended.
  void End(const absl::Status& status, google::protobuf::Message* result = nullptr) {
    {
      MutexLock lock(&mutex_);
      if (ended_) {
        return;
      }
      ended_ = true;
    }
    if (status.ok()) {
      response_->GetReflection()->Swap(response_, result);
    }
    Finish(ToGrpcStatus(status));
  }

  void OnCancel() override { End(absl::CancelledError("the client cancelled the call")); }

  void OnDone() override {
    alarm_.Cancel();
    const std::shared_ptr<Call> last = std::move(self_);
  }

 private:
  google::protobuf::Message* const response_;  // gRPC's, valid until Finish
  grpc::Alarm alarm_;
  std::shared_ptr<Call> self_;
  Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status UnaryCalls::Draining() {
  return RetryLater("SERVER_DRAINING",
                    "the server is stopping and takes no changes: try again when it is back",
                    kDrainRetryDelay);
}

void UnaryCalls::Stop() {
  Drain();
  state_->stopping = true;
}

absl::Status UnaryCalls::Run(const State& state, Call& call, const Work& work,
                             google::protobuf::Message& result) {
  const absl::Status status = work(result, [&state, &call](int64_t, int64_t) {
    return state.stopping || !call.Open() ? absl::CancelledError("nobody waits for it any more")
                                          : absl::OkStatus();
  });
  return state.stopping && absl::IsCancelled(status) ? Draining() : status;
}

grpc::ServerUnaryReactor* UnaryCalls::Start(grpc::CallbackServerContext* context,
                                            google::protobuf::Message* response, Work work) {
  auto call = std::make_shared<Call>(response);
  call->HoldUntilDone(call);
  if (context->deadline() == std::chrono::system_clock::time_point::max()) {
    call->SetDeadline(clock_.WallNow() + kDefaultDeadline, call);
  }
  const std::shared_ptr<google::protobuf::Message> result(response->New());
  if (++state_->waiting_count > waiting_limit_) {
    --state_->waiting_count;
    call->End(
        RetryLater("SERVER_BUSY", "too many calls that take long wait already", kBusyRetryDelay));
    return call.get();
  }
  executor_.Run([state = state_, call, result, work = std::move(work)] {
    --state->waiting_count;
    if (call->Open()) {
      call->End(Run(*state, *call, work, *result), result.get());
    }
  });
  return call.get();
}

}  // namespace megatrain
