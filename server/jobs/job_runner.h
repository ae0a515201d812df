// The one door to the engine.

#ifndef SERVER_JOBS_JOB_RUNNER_H_
#define SERVER_JOBS_JOB_RUNNER_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "megatrain/engine/v1/engine.pb.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

// A run ended by Stop, and the engine is free.
struct RunStopped {};

// The engine process died, or its connection broke, under the run; it is being started again.
struct EngineDied {
  // Code ENGINE_DIED, with the signal or exit code; ENGINE_STALLED when it ended itself because the
  // run stood still, with where.
  v1::JobReason reason;
};

// Something that happened in a run.
struct RunnerEvent {
  int64_t run = 0;
  std::variant<engine::v1::RunJobEvent, RunStopped, EngineDied> kind;
};

// Thread-safe. One run at a time: from Start to its last event, which is the engine's `finished`,
// `failed` or `paused`, RunStopped or EngineDied. Calls return at once.
class JobRunner {
 public:
  virtual ~JobRunner() = default;

  // A run can be started.
  virtual bool Ready() = 0;

  // Starts a run under a number that no other run had.
  virtual void Start(int64_t run, const engine::v1::RunJobRequest& request) = 0;

  // Asks the run to save its state after the step under way, and with `then_stop` to end so: its
  // last event is then `paused`. Of a run that holds since a save failed, to try again. Makes sense
  // once the run has told of its start; one that is at its end takes no notice.
  virtual void Save(v1::CheckpointTrigger trigger, bool then_stop) = 0;

  // Asks the run to end. Its last event comes all the same, and can still be `finished`.
  virtual void Stop() = 0;

  // What happened since the last call, in order.
  virtual std::vector<RunnerEvent> TakeEvents() = 0;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_RUNNER_H_
