#ifndef SERVER_ENGINE_ENGINE_SERVICE_H_
#define SERVER_ENGINE_ENGINE_SERVICE_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "megatrain/engine/v1/engine.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "runtime/trainer/trainer.h"
#include "server/engine/run_job_call.h"

namespace megatrain {

// The engine as the daemon sees it: at most one job at a time, run on the thread that calls
// RunJobs. Thread-safe.
class EngineService final : public engine::v1::EngineService::CallbackService {
 public:
  struct Options {
    std::string backend;
    int64_t baseline_bytes = 0;
    int64_t device_memory_bytes = 0;   // for a job; 0: what the host has at the time
    std::string machine_profile_json;  // ToJson of the machine; empty: not measured
  };

  // Refers to `trainer` and `clock`.
  EngineService(const Options& options, Trainer& trainer, const Clock& clock);

  // Runs the jobs of RunJob calls, one after another, until Stop. When it returns, what they told
  // is on its way to their clients.
  void RunJobs() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends RunJobs: a running job that has a folder of checkpoints saves its state and stops; without
  // one, or at the second call, it stops at its next step and leaves nothing new behind.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerUnaryReactor* GetEngine(grpc::CallbackServerContext* context,
                                      const engine::v1::GetEngineRequest* request,
                                      engine::v1::Engine* response) override;
  grpc::ServerWriteReactor<engine::v1::RunJobEvent>* RunJob(
      grpc::CallbackServerContext* context, const engine::v1::RunJobRequest* request) override;
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const engine::v1::SaveCheckpointRequest* request,
                                           engine::v1::SaveCheckpointResponse* response) override;

 private:
  std::shared_ptr<RunJobCall> NextCall() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunOne(RunJobCall& call);

  const Options options_;
  Trainer& trainer_;
  const Clock& clock_;
  const absl::Duration start_time_;  // monotonic
  AllStreamFigures past_figures_{};  // of the jobs before; of the thread that runs jobs

  Mutex mutex_;
  ConditionVariable changed_;
  std::shared_ptr<RunJobCall> current_ ABSL_GUARDED_BY(mutex_);  // waits or runs
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // SERVER_ENGINE_ENGINE_SERVICE_H_
