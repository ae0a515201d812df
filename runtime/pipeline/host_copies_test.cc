// What of the host's memory a device's copies touch, on processors with a pinner that counts.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device.h"
#include "runtime/device/stream_figures.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/pipeline_rig_for_test.h"
#include "runtime/pipeline/placements_for_test.h"
#include "runtime/pipeline/small_training.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

// Memory that a device reaches, and in which order it was asked for.
class ReachedMemory {
 public:
  void Add(const void* data, int64_t size_bytes) {
    MutexLock lock(&mutex_);
    ranges_[static_cast<const std::byte*>(data)] = size_bytes;
  }
  void Remove(const void* data) {
    MutexLock lock(&mutex_);
    ranges_.erase(static_cast<const std::byte*>(data));
  }
  bool Holds(const void* data, int64_t size_bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    MutexLock lock(&mutex_);
    const auto after = ranges_.upper_bound(first);
    if (after == ranges_.begin()) {
      return false;
    }
    const auto& [begin, length] = *std::prev(after);
    return first + size_bytes <= begin + length;
  }

  std::vector<std::string> requests;  // "pin", "device"

 private:
  Mutex mutex_;
  std::map<const std::byte*, int64_t> ranges_ ABSL_GUARDED_BY(mutex_);
};

// Takes so many calls and refuses all others.
class RefusingPinner final : public PagePinner {
 public:
  RefusingPinner(int limit, ReachedMemory& reached) : limit_(limit), reached_(reached) {}

  absl::Status Pin(void* data, int64_t size_bytes) override {
    reached_.requests.emplace_back("pin");
    if (open_ == limit_) {
      return absl::ResourceExhaustedError("full");
    }
    ++open_;
    reached_.Add(data, size_bytes);
    return absl::OkStatus();
  }
  void Unpin(void* data) override {
    --open_;
    reached_.Remove(data);
  }

 private:
  const int limit_;
  ReachedMemory& reached_;
  int open_ = 0;
};

// Fails where a copy touches other memory of the host.
class CheckingLauncher final : public Launcher {
 public:
  CheckingLauncher(Launcher& launcher, ReachedMemory& reached)
      : launcher_(launcher), reached_(reached) {}

  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    EXPECT_TRUE(reached_.Holds(host, size_bytes));
    launcher_.CopyToDevice(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    EXPECT_TRUE(reached_.Holds(host, size_bytes));
    launcher_.CopyToHost(host, device, size_bytes);
  }
  void Fill(void* device, uint8_t byte, int64_t size_bytes) override {
    launcher_.Fill(device, byte, size_bytes);
  }
  void FinishCopies() override { launcher_.FinishCopies(); }
  void SetMark(int mark) override { launcher_.SetMark(mark); }
  void AwaitMark(int mark) override { launcher_.AwaitMark(mark); }
  void* native_stream() override { return launcher_.native_stream(); }

 private:
  Launcher& launcher_;
  ReachedMemory& reached_;
};

class CheckingStream final : public Stream {
 public:
  CheckingStream(std::unique_ptr<Stream> stream, ReachedMemory& reached)
      : stream_(std::move(stream)), reached_(reached) {}

  void Enqueue(Work work) override {
    stream_->Enqueue([work = std::move(work), &reached = reached_](Launcher& launcher) {
      CheckingLauncher checking(launcher, reached);
      return work(checking);
    });
  }
  void Wait(Event& event, WaitReason reason) override { stream_->Wait(event, reason); }
  void Record(Event& event) override { stream_->Record(event); }
  StreamFigures Figures() const override { return stream_->Figures(); }

 private:
  const std::unique_ptr<Stream> stream_;
  ReachedMemory& reached_;
};

// Processors as a device that reaches only what it was told of.
class CheckingDevice final : public Device {
 public:
  explicit CheckingDevice(ReachedMemory& reached) : reached_(reached) {}

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t size_bytes) override {
    reached_.requests.emplace_back("device");
    return cpu_.Allocate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t size_bytes) override {
    auto buffer = cpu_.AllocateHost(size_bytes);
    if (buffer.ok()) {
      reached_.Add((*buffer)->data(), size_bytes);
    }
    return buffer;
  }
  std::unique_ptr<Event> MakeEvent() override { return cpu_.MakeEvent(); }
  std::unique_ptr<Stream> MakeStream(StreamPlace place) override {
    return std::make_unique<CheckingStream>(cpu_.MakeStream(place), reached_);
  }
  absl::Status Await(Event& event) override { return cpu_.Await(event); }
  absl::Status Drain() override { return cpu_.Drain(); }

 private:
  CpuDevice cpu_{TestClock()};
  ReachedMemory& reached_;
};

// All of a layer's activations wait on the host.
Placement StashingPlacement() {
  return {.keep = std::vector<KeepLevel>(6, KeepLevel::kProducts),
          .boundary_on_host = std::vector<bool>(6, true),
          .kept_on_host = std::vector<bool>(6, true),
          .stash_slots = 2};
}

TEST(HostCopiesTest, ActivationsThatAreNotPinnedGoThroughSlabs) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/15, 4);
  const Placement placement = StashingPlacement();
  const SmallOutcome expected = TrainInPlainLoops(placement.tied, placement.dtype, steps);
  for (const int limit : {0, 1}) {
    ReachedMemory reached;
    RefusingPinner pinner(limit, reached);
    Rig rig(placement, std::make_unique<CheckingDevice>(reached), &pinner);
    const StepPipeline::HostActivations host = rig.pipeline->host_activations();
    EXPECT_EQ(host.refusal.ok(), limit == 1);
    EXPECT_GT(host.size_bytes, 0);
    EXPECT_EQ(host.pinned_bytes, limit == 1 ? host.size_bytes : 0);
    EXPECT_EQ(rig.pipeline->uses_slabs(), limit == 0);
    EXPECT_GE(rig.pipeline->host_bytes(), host.size_bytes);
    ExpectEqual(rig.Train(steps, /*ahead=*/1), expected);
  }
}

// A device may need some of its own memory for what is pinned.
TEST(HostCopiesTest, ActivationsArePinnedBeforeTheDeviceIsFull) {
  ReachedMemory reached;
  RefusingPinner pinner(/*limit=*/1, reached);
  const Rig rig(StashingPlacement(), std::make_unique<CheckingDevice>(reached), &pinner);
  EXPECT_EQ(reached.requests, (std::vector<std::string>{"pin", "device"}));
}

// Nothing of the store is pinned, which a placement that leaves nothing to the host asks for: its
// states cross at the start and at the end all the same.
TEST(HostCopiesTest, WhatCrossesBetweenStepsAloneGoesThroughSlabsToo) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/16, 3);
  for (const PinMode pin : {PinMode::kAuto, PinMode::kFull}) {
    const Placement placement = {
        .updates = std::vector<UpdatePlacement>(6, UpdatePlacement::kDevice), .pin = pin};
    ReachedMemory reached;
    RefusingPinner pinner(/*limit=*/0, reached);
    Rig rig(placement, std::make_unique<CheckingDevice>(reached), &pinner);
    EXPECT_FALSE(rig.pipeline->uses_slabs()) << "in a step";
    EXPECT_GT(rig.pipeline->host_bytes(), 0);
    ExpectEqual(rig.Train(steps, /*ahead=*/1),
                TrainInPlainLoops(placement.tied, placement.dtype, steps));
  }
}

}  // namespace
}  // namespace megatrain
