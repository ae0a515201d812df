#ifndef SERVER_ENGINE_RUN_JOB_CALL_H_
#define SERVER_ENGINE_RUN_JOB_CALL_H_

#include <deque>
#include <memory>
#include <optional>

#include "grpcpp/grpcpp.h"
#include "megatrain/engine/v1/engine.grpc.pb.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "runtime/trainer/train_job.h"

namespace megatrain {

// One RunJob call: a queue of events between the job's thread, which sends, and gRPC, which writes
// one at a time. Thread-safe. Lives as long as gRPC or the job needs it, whoever ends later.
class RunJobCall final : public grpc::ServerWriteReactor<engine::v1::RunJobEvent>,
                         public std::enable_shared_from_this<RunJobCall> {
 public:
  static std::shared_ptr<RunJobCall> Make(const engine::v1::RunJobRequest& request);

  const engine::v1::RunJobRequest& request() const { return request_; }

  // Queues an event; drops it when the call is cancelled. Blocks while many events wait, so that
  // a slow reader slows the job down instead of filling the memory.
  void Send(engine::v1::RunJobEvent event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with `status` once everything queued is written. Nothing is sent after it.
  void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until everything is on its way to the client, or the client is gone. After End.
  void WaitUntilDone() ABSL_LOCKS_EXCLUDED(mutex_);

  // Remembers that a checkpoint is asked for, until it is taken. A later request replaces an
  // earlier one, but a then_stop stays.
  void RequestSave(SaveRequest request) ABSL_LOCKS_EXCLUDED(mutex_);

  // The process ends: the job is to save its state and stop, and not to wait when it cannot.
  void SaveAndEnd() ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<SaveRequest> TakeSaveRequest() ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until there is one; absent when the job is to end.
  std::optional<SaveRequest> WaitForSaveRequest() ABSL_LOCKS_EXCLUDED(mutex_);

  // The client left or the process ends: the job is to stop.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);
  bool cancelled() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit RunJobCall(const engine::v1::RunJobRequest& request) : request_(request) {}

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCancel() override { Cancel(); }
  void OnDone() override ABSL_LOCKS_EXCLUDED(mutex_);

  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const engine::v1::RunJobRequest request_;
  std::shared_ptr<RunJobCall> self_;  // until gRPC is done with it

  Mutex mutex_;
  ConditionVariable written_;
  // The front one is being written when `writing_`; a deque keeps its address.
  std::deque<engine::v1::RunJobEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  ConditionVariable save_requested_;
  std::optional<SaveRequest> save_request_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  ConditionVariable done_changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // SERVER_ENGINE_RUN_JOB_CALL_H_
