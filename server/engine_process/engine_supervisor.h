// Keeps one engine process alive.

#ifndef SERVER_ENGINE_PROCESS_ENGINE_SUPERVISOR_H_
#define SERVER_ENGINE_PROCESS_ENGINE_SUPERVISOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "megatrain/engine/v1/engine.grpc.pb.h"
#include "megatrain/v1/job.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "server/engine_process/child_process.h"

namespace megatrain {

// Starts the engine, notices its death, records the reason and starts it again after a delay that
// doubles while it keeps dying before it answers. One that lives but does not answer is killed.
// Thread-safe.
class EngineSupervisor {
 public:
  struct Options {
    std::string engine_path;
    std::string socket_path;  // short enough for a unix socket: 107 bytes
    std::string log_path;
    std::vector<std::string> arguments;  // but for --socket, --parent
    absl::Duration first_delay = absl::Milliseconds(200);
    absl::Duration longest_delay = absl::Seconds(30);
    // It is asked for a sign of life so often, has as long to answer, and is killed after so many
    // questions in a row without one: two minutes.
    absl::Duration question_interval = absl::Seconds(5);
    int question_limit = 12;
  };

  // `on_change` is called from another thread when the engine became ready or died. The clock
  // outlives this.
  EngineSupervisor(Options options, const Clock& clock, std::function<void()> on_change);

  // Ends the engine: SIGTERM, after 10 s SIGKILL.
  ~EngineSupervisor();

  EngineSupervisor(const EngineSupervisor&) = delete;
  EngineSupervisor& operator=(const EngineSupervisor&) = delete;

  struct State {
    bool ready = false;         // it answers
    int64_t generation = 0;     // counts processes, from 1
    int64_t restart_count = 0;  // deaths that were not asked for
    pid_t pid = 0;              // of the process of `generation`; 0 when it does not live
    engine::v1::Engine engine;  // as it said when it became ready
    std::shared_ptr<engine::v1::EngineService::StubInterface> stub;  // while it is ready
    // Empty when it never died; ENGINE_STALLED when it ended itself because its job stood still,
    // else ENGINE_DIED.
    v1::JobReason last_death;
  };
  State GetState() const;

  // The reason of the death of the process `generation`; none when it lives on for `timeout`.
  std::optional<v1::JobReason> WaitForDeath(int64_t generation, absl::Duration timeout);

  // Kills the process `generation`, whose death is then recorded with `why`.
  void Kill(int64_t generation, const std::string& why);

 private:
  void Loop();
  // One process from its start to its death; whether it ever answered.
  bool RunOnce();
  bool WaitUntilReady(ChildProcess& child);
  void RecordDeath(const std::string& code, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the engine that lives, until this one stops.
  void AskForLife();
  bool WaitForQuestion() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const Clock& clock_;
  const std::function<void()> on_change_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  State state_ ABSL_GUARDED_BY(mutex_);
  int64_t dead_generation_ ABSL_GUARDED_BY(mutex_) = 0;  // this one and all before have died
  std::string kill_reason_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ChildProcess> child_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // also the parent to which the engine binds its life
  std::thread question_thread_;
};

}  // namespace megatrain

#endif  // SERVER_ENGINE_PROCESS_ENGINE_SUPERVISOR_H_
