// JobRunner over the engine process.

#ifndef SERVER_ENGINE_PROCESS_ENGINE_JOB_RUNNER_H_
#define SERVER_ENGINE_PROCESS_ENGINE_JOB_RUNNER_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "server/engine_process/engine_supervisor.h"
#include "server/executor/executor.h"
#include "server/jobs/job_runner.h"

namespace megatrain {

class EngineJobRunner final : public JobRunner {
 public:
  // `wake` is called from another thread when TakeEvents or Ready has news. The supervisor
  // and the clock outlive this.
  EngineJobRunner(EngineSupervisor& supervisor, const Clock& clock, std::function<void()> wake)
      : supervisor_(supervisor), clock_(clock), wake_(std::move(wake)) {}

  // Ends a run that is under way.
  ~EngineJobRunner() override;

  bool Ready() override;
  void Start(int64_t run, const engine::v1::RunJobRequest& request) override;
  void Save(v1::CheckpointTrigger trigger, bool then_stop) override;
  void Stop() override;
  std::vector<RunnerEvent> TakeEvents() override;

 private:
  // Repeats the call until the engine answers or the run has ended.
  void AskToSave(int64_t run, const engine::v1::SaveCheckpointRequest& request);
  bool IsRunning(int64_t run);
  void Run(int64_t run, const engine::v1::RunJobRequest& request);
  // Reads the engine's events; true when the last one was among them.
  bool ReadEvents(int64_t run, const engine::v1::RunJobRequest& request,
                  engine::v1::EngineService::StubInterface& stub, grpc::Status* status);
  // What a run ends with whose stream ended without a last event.
  RunnerEvent EndWithoutEvent(int64_t run, int64_t generation, const grpc::Status& status);
  // Returns when the engine can take the next job; kills one that does not stop.
  void WaitUntilFree(int64_t generation);
  void Put(RunnerEvent event, bool last);

  EngineSupervisor& supervisor_;
  const Clock& clock_;
  const std::function<void()> wake_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<RunnerEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t run_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one
  bool stop_asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
  Executor saver_{1};
};

}  // namespace megatrain

#endif  // SERVER_ENGINE_PROCESS_ENGINE_JOB_RUNNER_H_
