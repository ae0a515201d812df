// JobRunner for tests: does what the test says, when the test says it.

#ifndef SERVER_JOBS_SCRIPTED_JOB_RUNNER_H_
#define SERVER_JOBS_SCRIPTED_JOB_RUNNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "server/jobs/job_runner.h"

namespace megatrain {

// Not thread-safe: test and controller share a thread.
class ScriptedJobRunner final : public JobRunner {
 public:
  bool Ready() override { return ready && !running.has_value(); }

  void Start(int64_t run, const engine::v1::RunJobRequest& request) override {
    running = request;
    run_ = run;
    stop_asked = false;
    save_asked.reset();
  }

  void Save(v1::CheckpointTrigger trigger, bool then_stop) override {
    then_stop = then_stop || (save_asked.has_value() && save_asked->then_stop);
    save_asked = SaveAsked{trigger, then_stop};
  }

  void Stop() override { stop_asked = true; }

  std::vector<RunnerEvent> TakeEvents() override { return std::exchange(events_, {}); }

  // What the engine works on, and the save that it was asked for, where there must be one.
  const engine::v1::RunJobRequest& Running() const {
    MT_CHECK(running.has_value());
    return *running;
  }
  struct SaveAsked {
    v1::CheckpointTrigger trigger;
    bool then_stop;
  };
  const SaveAsked& LastSave() const {
    MT_CHECK(save_asked.has_value());
    return *save_asked;
  }

  void Emit(engine::v1::RunJobEvent event) { events_.push_back({run_, std::move(event)}); }

  static constexpr int64_t kEnginePlanBytes = 12345;

  void EmitStarted(int64_t planned_step_count) {
    engine::v1::RunJobEvent event;
    event.mutable_started()->set_planned_step_count(planned_step_count);
    event.mutable_started()->mutable_plan()->set_host_bytes(kEnginePlanBytes);
    Emit(event);
  }

  void EmitStep(const v1::StepRecord& step) {
    engine::v1::RunJobEvent event;
    *event.mutable_step() = step;
    Emit(event);
  }

  void EmitCheckpoint(const std::string& id, int64_t step) {
    engine::v1::RunJobEvent event;
    event.mutable_checkpoint()->set_checkpoint_id(id);
    event.mutable_checkpoint()->set_step(step);
    Emit(event);
  }

  void EmitCheckpointFailure(const std::string& code) {
    engine::v1::RunJobEvent event;
    event.mutable_checkpoint_failed()->mutable_reason()->set_code(code);
    Emit(event);
  }

  // The last events of a run.
  void Pause(const std::string& checkpoint_id) {
    engine::v1::RunJobEvent event;
    event.mutable_paused()->set_checkpoint_id(checkpoint_id);
    EndRun({run_, std::move(event)});
  }

  void Finish() {
    engine::v1::RunJobEvent event;
    event.mutable_finished()->set_peak_host_bytes(1000);
    EndRun({run_, std::move(event)});
  }

  void Fail(const std::string& code, const std::string& message) {
    engine::v1::RunJobEvent event;
    event.mutable_failed()->set_code(code);
    event.mutable_failed()->set_message(message);
    EndRun({run_, std::move(event)});
  }

  void ReportStopped() { EndRun({run_, RunStopped()}); }

  void Die(const std::string& message, const std::string& code = "ENGINE_DIED") {
    EngineDied died;
    died.reason.set_code(code);
    died.reason.set_message(message);
    EndRun({run_, died});
  }

  bool ready = true;
  std::optional<engine::v1::RunJobRequest> running;  // from Start to the run's last event
  bool stop_asked = false;
  std::optional<SaveAsked> save_asked;

 private:
  void EndRun(RunnerEvent event) {
    events_.push_back(std::move(event));
    running.reset();
  }

  int64_t run_ = 0;
  std::vector<RunnerEvent> events_;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_SCRIPTED_JOB_RUNNER_H_
