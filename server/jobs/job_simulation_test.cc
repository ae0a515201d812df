// The whole life of jobs under random clients, engines that die, disks that fill and a daemon that
// is killed at any write, in virtual time. What must hold is checked at every write and tick.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/file_system.h"
#include "runtime/base/virtual_clock.h"
#include "server/errors/errors.h"
#include "server/jobs/crashing_job_store.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/memory_job_store.h"
#include "server/jobs/scripted_job_checkpoints.h"
#include "server/jobs/scripted_job_materials.h"
#include "server/jobs/scripted_job_runner.h"

namespace megatrain {
namespace {

constexpr int kSeeds = 1000;
constexpr int kTicksWithFaults = 150;
constexpr int kTicksToEnd = 1000;
constexpr int kMaxAttempts = 3;
constexpr int64_t kSteps = 5;
constexpr char kNoMemory[] = "RESOURCE_EXHAUSTED";
constexpr char kDiskFull[] = "DISK_FULL";

// The table of states in the API's documentation; a job that is put back is in it too.
bool MayFollow(v1::JobState from, v1::JobState to) {
  static const auto* const next = new std::map<v1::JobState, std::set<v1::JobState>>{
      {v1::JOB_STATE_QUEUED,
       {v1::JOB_STATE_PREPARING, v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_CANCELLED}},
      {v1::JOB_STATE_PREPARING,
       {v1::JOB_STATE_RUNNING, v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED,
        v1::JOB_STATE_CANCELLING}},
      {v1::JOB_STATE_RUNNING,
       {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLING,
        v1::JOB_STATE_QUEUED, v1::JOB_STATE_PAUSING}},
      {v1::JOB_STATE_PAUSING,
       {v1::JOB_STATE_PAUSED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED,
        v1::JOB_STATE_CANCELLING}},
      {v1::JOB_STATE_PAUSED, {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED}},
      {v1::JOB_STATE_CANCELLING, {v1::JOB_STATE_CANCELLED}}};
  if (from == to) {
    return !IsFinal(from);
  }
  const auto allowed = next->find(from);
  return allowed != next->end() && allowed->second.contains(to);
}

class QuietObserver final : public JobObserver {
 public:
  void OnChange(const v1::Job&) override {}
  void OnLog(const v1::Job&) override {}
  void OnStep(const v1::Job&, const v1::StepRecord&) override {}
  void OnCheckpoint(const v1::Job&, const engine::v1::CheckpointSaved&) override {}
  void OnCheckpointFailure(const v1::Job&, const v1::CheckpointFailure&) override {}
  void OnEvaluation(const v1::Job&, const v1::EvaluationRecord&) override {}
  void OnDrained(const v1::Job&) override {}
  void OnPreempted(const v1::Job&) override {}
  void OnRecovered(const v1::Job&) override {}
  void OnEnd(const v1::Job&) override {}
  void OnFigures(const engine::v1::StreamFigures&) override {}
  void OnActiveJobs(const std::vector<JobRecord>&) override {}
};

// A log's disk that is always full: the controller must not mind.
class FullDisk final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string&, bool) override {
    return absl::ResourceExhaustedError("disk full");
  }
  absl::StatusOr<std::unique_ptr<BlockFile>> OpenForBlocks(const std::string&, int64_t) override {
    return absl::ResourceExhaustedError("disk full");
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string&) override {
    return Absent();
  }
  absl::StatusOr<std::string> ReadFile(const std::string&, int64_t) override { return Absent(); }
  absl::StatusOr<int64_t> FileSize(const std::string&) override { return Absent(); }
  bool Exists(const std::string&) override { return false; }
  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string&) override {
    return Absent();
  }
  absl::Status MakeFolders(const std::string&) override { return absl::OkStatus(); }
  absl::Status Rename(const std::string&, const std::string&) override { return Absent(); }
  absl::Status Link(const std::string&, const std::string&) override { return Absent(); }
  absl::Status Truncate(const std::string&, int64_t) override { return Absent(); }
  absl::Status SyncFolder(const std::string&) override { return absl::OkStatus(); }
  absl::Status RemoveTree(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<int64_t> AvailableBytes(const std::string&) override { return 0; }

 private:
  static absl::Status Absent() { return absl::NotFoundError("nothing here"); }
};

class Simulation {
 public:
  explicit Simulation(int seed) : random_(seed) { Boot(); }

  void Run() {
    for (int i = 0; i < kTicksWithFaults; ++i) {
      ActAsClient();
      OneTick();
    }
    faults_ = false;
    Boot();
    int ticks = 0;
    while (HasActiveJobs() && ++ticks < kTicksToEnd) {
      if (ticks % 20 == 1) {
        ResumeAll();
      }
      OneTick();
    }
    CheckEnd();
  }

 private:
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  // A new process over what is on disk.
  void Boot() {
    controller_.reset();
    store_ = std::make_unique<CrashingJobStore>(
        disk_store_, [this] { return NextFate(); },
        [this](const JobRecord& before, const v1::Job& after,
               const std::vector<v1::JobEvent>& events) { CheckUpdate(before, after, events); });
    runner_ = std::make_unique<ScriptedJobRunner>();
    materials_ = std::make_unique<ScriptedJobMaterials>(disk_);
    checkpoints_ = std::make_unique<ScriptedJobCheckpoints>(
        checkpoint_disk_, [this] { return WriteCheckpointRow(); });
    checkpoints_->Reconcile();
    controller_ = std::make_unique<JobController>(
        JobController::Parts{*store_, *runner_, *materials_, *checkpoints_, log_, observer_},
        [] {});
    draining_ = false;
    checkpoint_store_crashed_ = false;
  }

  // A crash here is one of the whole process, but the row may be there or not.
  absl::Status WriteCheckpointRow() {
    if (checkpoint_store_crashed_ || store_->crashed()) {
      return absl::UnavailableError("the process is gone");
    }
    switch (NextFate()) {
      case WriteFate::kDiskFull:
        return absl::ResourceExhaustedError("disk full");
      case WriteFate::kCrashBefore:
        checkpoint_store_crashed_ = true;
        return absl::UnavailableError("the process is gone");
      case WriteFate::kCrashAfter:
        checkpoint_store_crashed_ = true;  // the next tick is none of this process any more
        return absl::OkStatus();
      case WriteFate::kWorks:
        break;
    }
    return absl::OkStatus();
  }

  WriteFate NextFate() {
    if (!faults_ || !Chance(6)) {
      return WriteFate::kWorks;
    }
    return Chance(50) ? WriteFate::kDiskFull
                      : (Chance(50) ? WriteFate::kCrashBefore : WriteFate::kCrashAfter);
  }

  void ActAsClient() {
    if (pending_.empty() && Chance(20)) {
      pending_ = absl::StrCat("job-", ++created_);
    }
    if (!pending_.empty()) {
      v1::Job job;
      job.set_name("jobs/" + pending_);
      job.set_state(v1::JOB_STATE_QUEUED);
      job.set_attempt(1);
      job.mutable_spec()->set_output("models/" + pending_);
      job.mutable_spec()->mutable_retry()->set_max_attempts(kMaxAttempts);
      job.mutable_spec()->set_priority(created_ % 7 == 0 ? 1 : 0);
      // The same request again until it is answered.
      const auto answer = store_->Create({"CreateJob", pending_, pending_}, job);
      if (answer.ok()) {
        EXPECT_EQ(answer->state(), v1::JOB_STATE_QUEUED) << "the first answer";
        EXPECT_TRUE(accepted_.insert(answer->name()).second);
        pending_.clear();
      }
    }
    if (created_ > 0 && Chance(16)) {
      const std::string name = absl::StrCat("jobs/job-", 1 + random_() % created_);
      using Kind = JobWish::Kind;
      static constexpr Kind kKinds[] = {Kind::kCancel, Kind::kCancel, Kind::kPause,
                                        Kind::kResume, Kind::kResume, Kind::kSave};
      store_->RecordWish({"Wish", "", ""}, name, {.kind = kKinds[random_() % 6]})
          .status()
          .IgnoreError();
    }
  }

  void ResumeAll() {
    const auto active = disk_store_.Active();
    for (const JobRecord& record : *active) {
      const JobWish wish{.kind = JobWish::Kind::kResume};
      disk_store_.RecordWish({"Wish", "", ""}, record.job.name(), wish).status().IgnoreError();
    }
  }

  void OneTick() {
    clock_.Advance(absl::Seconds(1));
    if (faults_ && Chance(2)) {
      clock_.JumpWall(clock_.WallNow() + absl::Hours(static_cast<int>(random_() % 200) - 100));
    }
    if (faults_ && !draining_ && Chance(1)) {
      draining_ = true;
      controller_->Drain();
    }
    WorkOnMaterials();
    WorkOnEngine();
    const absl::Status status = controller_->Tick(clock_.WallNow());
    EXPECT_TRUE(status.ok() || faults_) << status;
    if (store_->crashed() || checkpoint_store_crashed_ ||
        (draining_ && controller_->Idle() && Chance(30))) {
      Boot();
    }
    CheckTick();
  }

  void WorkOnMaterials() {
    if (!materials_->HasQuestions() || Chance(50)) {
      return;
    }
    materials_->preparation = faults_ && Chance(10) ? absl::InvalidArgumentError("row 3 is no JSON")
                              : faults_ && Chance(5)
                                  ? WithReason(absl::ResourceExhaustedError("disk full"), kDiskFull)
                                  : absl::OkStatus();
    materials_->publication = faults_ && Chance(30)
                                  ? WithReason(absl::ResourceExhaustedError("disk full"), kDiskFull)
                                  : absl::OkStatus();
    materials_->Answer();
  }

  void WorkOnEngine() {
    runner_->ready = !faults_ || !Chance(10);
    if (!runner_->running.has_value()) {
      started_ = false;
      return;
    }
    const std::string name = runner_->Running().name();
    EXPECT_EQ(disk_store_.Get(name)->job.state() == v1::JOB_STATE_QUEUED, false)
        << name << " runs and waits";
    if (faults_ && Chance(5)) {
      runner_->Die("killed by signal 9");
    } else if (runner_->stop_asked && Chance(50)) {
      runner_->ReportStopped();
    } else if (faults_ && Chance(3)) {
      runner_->Fail("NONFINITE", "layer 3");
    } else if (faults_ && !started_ && Chance(10)) {
      runner_->Fail(kNoMemory, "another process holds the memory");
    } else if (!started_) {
      StartEngine(name);
    } else {
      WorkOnSteps(name);
    }
  }

  void StartEngine(const std::string& name) {
    const std::string path = runner_->Running().resume_checkpoint_path();
    int64_t newest = 0;
    for (const auto& [id, step] : checkpoint_disk_.folders[name]) {
      newest = std::max(newest, step);
    }
    engine_step_ = path.empty() ? 0 : std::stoll(path.substr(path.rfind('-') + 1));
    EXPECT_EQ(engine_step_, newest) << name << " lost work";
    holds_ = false;
    started_ = true;
    runner_->EmitStarted(kSteps);
  }

  void WorkOnSteps(const std::string& name) {
    const bool asked = runner_->save_asked.has_value();
    if ((asked && Chance(60)) || (!holds_ && Chance(15))) {
      SaveInEngine(name);
    } else if (holds_) {
      return;
    } else if (engine_step_ < kSteps) {
      v1::StepRecord step;
      step.set_step(++engine_step_);
      runner_->EmitStep(step);
    } else if (!asked) {
      disk_.output_folders.insert(runner_->Running().output_path());
      runner_->Finish();
    }
  }

  void SaveInEngine(const std::string& name) {
    holds_ = faults_ && Chance(20);
    if (holds_) {
      runner_->EmitCheckpointFailure("DISK_FULL");
      if (runner_->save_asked.has_value() && !runner_->LastSave().then_stop) {
        runner_->save_asked.reset();
      }
      return;
    }
    const std::string id = absl::StrCat("step-", engine_step_);
    checkpoint_disk_.folders[name][id] = engine_step_;
    runner_->EmitCheckpoint(id, engine_step_);
    const bool stops = runner_->save_asked.has_value() && runner_->LastSave().then_stop;
    runner_->save_asked.reset();
    if (stops) {
      runner_->Pause(id);
    }
  }

  void CheckUpdate(const JobRecord& before, const v1::Job& after,
                   const std::vector<v1::JobEvent>& events) {
    // Changes that a full disk held up are written at once, each with its event.
    v1::JobState state = before.job.state();
    for (const v1::JobEvent& event : events) {
      if (event.has_state_change()) {
        EXPECT_TRUE(MayFollow(state, event.state_change().state()))
            << after.name() << ": " << v1::JobState_Name(state) << " -> "
            << v1::JobState_Name(event.state_change().state());
        state = event.state_change().state();
      }
      if (event.has_checkpoint()) {
        attempt_of_checkpoint_[after.name()] = before.job.attempt();
      }
    }
    EXPECT_EQ(state, after.state());
    EXPECT_GE(after.attempt(), before.job.attempt());
    const int base = std::max(attempt_of_checkpoint_[after.name()], 1);
    EXPECT_LT(after.attempt() - base, kMaxAttempts) << after.name() << " is tried for ever";
    if (before.job.state() == v1::JOB_STATE_QUEUED && after.state() == v1::JOB_STATE_PREPARING) {
      const auto others = disk_store_.Active();
      for (const JobRecord& other : *others) {
        const std::string& code = other.job.reason().code();
        EXPECT_FALSE(GoesBefore(other, before) && code != kNoMemory && code != kDiskFull)
            << after.name() << " passed " << other.job.name();
      }
    }
    if (after.state() == v1::JOB_STATE_SUCCEEDED) {
      EXPECT_EQ(after.output_version(), disk_.versions[after.name()]);
      EXPECT_NE(after.output_version(), "");
    }
    if (after.state() == v1::JOB_STATE_CANCELLED) {
      EXPECT_TRUE(before.wishes.cancel) << after.name() << " was cancelled by nobody";
    }
    if (before.job.phase() == kPublishingPhase) {
      EXPECT_TRUE(after.state() == v1::JOB_STATE_SUCCEEDED ||
                  after.state() == v1::JOB_STATE_CANCELLED || after.phase() == kPublishingPhase)
          << after.name() << " lost its result";
    }
    if (after.state() == v1::JOB_STATE_FAILED) {
      EXPECT_NE(after.reason().code(), "");
    }
  }

  // Both wait, and `a` is to go first.
  static bool GoesBefore(const JobRecord& a, const JobRecord& b) {
    const bool waits = !a.wishes.cancel && !a.wishes.pause && !a.job.held() &&
                       a.job.state() == v1::JOB_STATE_QUEUED;
    const int priority_a = a.job.spec().priority();
    const int priority_b = b.job.spec().priority();
    return waits &&
           (priority_a > priority_b || (priority_a == priority_b && a.acceptance < b.acceptance));
  }

  void CheckTick() {
    EXPECT_LE(CountJobs({v1::JOB_STATE_PREPARING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_PAUSING,
                         v1::JOB_STATE_CANCELLING},
                        /*limit=*/2),
              1u);
  }

  bool HasActiveJobs() {
    return CountJobs({v1::JOB_STATE_QUEUED, v1::JOB_STATE_PREPARING, v1::JOB_STATE_RUNNING,
                      v1::JOB_STATE_PAUSING, v1::JOB_STATE_PAUSED, v1::JOB_STATE_CANCELLING},
                     /*limit=*/1) > 0;
  }

  size_t CountJobs(const std::vector<v1::JobState>& states, int limit) {
    return disk_store_.List({.states = states, .before_acceptance = 0, .limit = limit})->size();
  }

  void CheckEnd() {
    EXPECT_FALSE(HasActiveJobs()) << "some job never ends";
    EXPECT_TRUE(disk_.output_folders.empty()) << *disk_.output_folders.begin() << " is left";
    for (const std::string& name : accepted_) {
      ASSERT_TRUE(disk_store_.Get(name).ok()) << name << " was accepted and is lost";
      const auto events = disk_store_.Events(name, 0, 1'000'000);
      for (size_t i = 0; i < events->size(); ++i) {
        EXPECT_EQ((*events)[i].sequence(), static_cast<int64_t>(i) + 1);
      }
      ASSERT_FALSE(events->empty());
      EXPECT_EQ(events->back().state_change().state(), disk_store_.Get(name)->job.state());
      EXPECT_EQ(disk_.versions.contains(name),
                disk_store_.Get(name)->job.state() == v1::JOB_STATE_SUCCEEDED)
          << name;
    }
  }

  std::mt19937 random_;
  bool faults_ = true;
  bool draining_ = false;
  bool started_ = false;
  int created_ = 0;
  std::string pending_;  // a job that the client asks for until it is accepted
  std::set<std::string> accepted_;
  int64_t engine_step_ = 0;
  bool holds_ = false;
  bool checkpoint_store_crashed_ = false;
  std::map<std::string, int> attempt_of_checkpoint_;

  VirtualClock clock_;
  MemoryJobStore disk_store_;
  ScriptedDisk disk_;
  FullDisk full_disk_;
  JobLog log_{full_disk_, "/log"};
  QuietObserver observer_;
  std::unique_ptr<CrashingJobStore> store_;
  std::unique_ptr<ScriptedJobRunner> runner_;
  std::unique_ptr<ScriptedJobMaterials> materials_;
  ScriptedCheckpointDisk checkpoint_disk_;
  std::unique_ptr<ScriptedJobCheckpoints> checkpoints_;
  std::unique_ptr<JobController> controller_;
};

// MEGATRAIN_SEED runs one seed alone, again.
TEST(JobSimulationTest, NothingIsLostUnderFaults) {
  const char* const chosen =
      std::getenv("MEGATRAIN_SEED");  // NOLINT(concurrency-mt-unsafe): nobody sets any
  const int first = chosen == nullptr ? 0 : std::atoi(chosen);
  const int last = chosen == nullptr ? kSeeds : first + 1;
  for (int seed = first; seed < last; ++seed) {
    Simulation(seed).Run();
    if (HasFailure()) {
      std::cerr << "seed " << seed << ": run it alone with MEGATRAIN_SEED=" << seed << "\n";
      return;
    }
  }
}

}  // namespace
}  // namespace megatrain
