// The watchdog over a real pipeline whose layers can be made to hang.

#include "runtime/trainer/watchdog.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/device/cpu_device.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/counting_templates.h"
#include "runtime/pipeline/host_math.h"
#include "runtime/pipeline/small_training.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Holds whoever comes until it is opened.
class Gate {
 public:
  void Pass() {
    MutexLock lock(&mutex_);
    arrived_ = true;
    changed_.NotifyAll();
    while (!open_) {
      changed_.Wait(&mutex_);
    }
  }

  void AwaitArrival() {
    MutexLock lock(&mutex_);
    while (!arrived_) {
      changed_.Wait(&mutex_);
    }
  }

  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool arrived_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

class WatchdogTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kGenerousLimit = absl::Minutes(10);

  WatchdogTest() {
    auto created = StepPipeline::Create({device_, math_, *store_, templates_, pool_}, layout_,
                                        {.max_micro_batch_tokens = kSmallMicroBatchTokens,
                                         .max_step_tokens = kSmallStepTokens,
                                         .max_micro_batches = kSmallMicroBatches,
                                         .workspace_bytes = CountingTemplates::kWorkspaceBytes});
    EXPECT_TRUE(created.ok()) << created.status();
    pipeline_ = *std::move(created);
  }

  // Time passes, and the watchdog looks.
  void Pass(absl::Duration duration) {
    const absl::Duration end = clock_.MonotonicNow() + duration;
    while (clock_.MonotonicNow() < end) {
      clock_.Advance(absl::Seconds(5));
      watchdog_.Look();
    }
  }

  std::vector<std::string> stalls() {
    MutexLock lock(&mutex_);
    return stalls_;
  }

  // Until the stall is told; how long that took.
  absl::Duration PassUntilStall() {
    const absl::Duration start = clock_.MonotonicNow();
    while (stalls().empty()) {
      Pass(absl::Seconds(5));
    }
    return clock_.MonotonicNow() - start;
  }

  void Submit() {
    const absl::Status status = pipeline_->SubmitStep(step_.Input());
    EXPECT_TRUE(status.ok()) << status;
  }

  const ModelLayout layout_ = SmallLayout(/*tied=*/false);
  const SmallStep step_ = SmallSteps(/*seed=*/3, /*count=*/1).front();
  VirtualClock clock_;
  CpuDevice device_{clock_};
  HostMath math_;
  const std::unique_ptr<HostStore> store_ = SmallStore(layout_, ComputeDtype::kFloat32);
  CountingTemplates templates_{layout_, ComputeDtype::kFloat32};
  OptimizerPool pool_{1};
  std::unique_ptr<StepPipeline> pipeline_;
  Mutex mutex_;
  std::vector<std::string> stalls_ ABSL_GUARDED_BY(mutex_);
  Watchdog watchdog_{clock_, kGenerousLimit, [this](const std::string& what) {
                       MutexLock lock(&mutex_);
                       stalls_.push_back(what);
                     }};
};

TEST_F(WatchdogTest, AHangInALayerIsNamedOnceTheLimitIsOver) {
  Gate gate;
  templates_.set_observer([&gate](int unit) {
    if (unit == 3) {
      gate.Pass();
    }
    return absl::OkStatus();
  });
  const Watchdog::PipelineWatch watch(watchdog_, *pipeline_);
  Submit();
  gate.AwaitArrival();
  EXPECT_GE(PassUntilStall(), kGenerousLimit);
  EXPECT_THAT(stalls().front(), HasSubstr("compute is in layer_forward unit 3 micro-batch 0"));
  Pass(absl::Hours(1));
  EXPECT_EQ(stalls().size(), 1u) << "told once";
  gate.Open();
  EXPECT_TRUE(pipeline_->Drain().ok());
}

TEST_F(WatchdogTest, TheLimitFollowsTheStepsThatWereMeasured) {
  Gate gate;
  const Watchdog::PipelineWatch watch(watchdog_, *pipeline_);
  watchdog_.StepEnded(absl::Seconds(4));
  watchdog_.StepEnded(absl::Seconds(6));
  templates_.set_observer([&gate](int unit) {
    if (unit == 2) {
      gate.Pass();
    }
    return absl::OkStatus();
  });
  Submit();
  gate.AwaitArrival();
  const absl::Duration waited = PassUntilStall();
  EXPECT_GE(waited, 20 * absl::Seconds(5));
  EXPECT_LT(waited, kGenerousLimit);
  gate.Open();
  EXPECT_TRUE(pipeline_->Drain().ok());
}

TEST_F(WatchdogTest, AJobThatMovesOrRestsIsLeftAlone) {
  const Watchdog::PipelineWatch watch(watchdog_, *pipeline_);
  for (int step = 0; step < 3; ++step) {
    Submit();
    ASSERT_TRUE(pipeline_->WaitStep().ok());
    ASSERT_TRUE(pipeline_->WaitForUpdates().ok());
    watchdog_.StepEnded(absl::Milliseconds(1));
    Pass(absl::Hours(2));  // whoever is told of the step takes his time
  }
  EXPECT_THAT(stalls(), IsEmpty());
}

TEST_F(WatchdogTest, LongWorkBeatsOrIsNamed) {
  watchdog_.SetPhase("loading");
  for (int piece = 0; piece < 10; ++piece) {
    watchdog_.Beat();
    Pass(kGenerousLimit / 2);
  }
  EXPECT_THAT(stalls(), IsEmpty());
  PassUntilStall();
  EXPECT_THAT(stalls().front(), HasSubstr("loading does not go on"));
}

}  // namespace
}  // namespace megatrain
