// What every backend of Device must do.

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device.h"
#include "runtime/device/virtual_device.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Backend {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

Clock& TestClock() {
  static SystemClock clock;
  return clock;
}

class DeviceConformanceTest : public testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<Device> device_ = GetParam().make();
};

Work Append(std::vector<int>& log, int value) {
  return [&log, value](Launcher&) {
    log.push_back(value);
    return absl::OkStatus();
  };
}

TEST_P(DeviceConformanceTest, AStreamKeepsItsOrder) {
  const auto stream = device_->MakeStream();
  std::vector<int> log;
  std::vector<int> expected;
  for (int i = 0; i < 100; ++i) {
    stream->Enqueue(Append(log, i));
    expected.push_back(i);
  }
  ASSERT_TRUE(device_->Drain().ok());
  EXPECT_EQ(log, expected);
}

TEST_P(DeviceConformanceTest, AWaitHoldsBackWhatFollows) {
  for (int round = 0; round < 50; ++round) {
    const auto event = device_->MakeEvent();
    const auto first = device_->MakeStream();
    const auto second = device_->MakeStream();
    std::vector<int> log;
    for (int i = 0; i < 5; ++i) {
      first->Enqueue(Append(log, i));
    }
    first->Record(*event);
    second->Wait(*event, WaitReason::kNorm);
    second->Enqueue(Append(log, 5));
    ASSERT_TRUE(device_->Drain().ok());
    EXPECT_THAT(log, ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST_P(DeviceConformanceTest, AWaitMeansTheLatestRecordBeforeIt) {
  const auto event = device_->MakeEvent();
  const auto first = device_->MakeStream();
  const auto second = device_->MakeStream();
  std::vector<int> log;
  first->Record(*event);
  first->Enqueue(Append(log, 1));
  first->Record(*event);
  second->Wait(*event, WaitReason::kNorm);
  second->Enqueue(Append(log, 2));
  // Recorded after the wait: `second` does not wait for it, or it would wait for itself.
  const auto done = device_->MakeEvent();
  second->Record(*done);
  first->Wait(*done, WaitReason::kSlotFree);
  first->Enqueue(Append(log, 3));
  first->Record(*event);
  ASSERT_TRUE(device_->Await(*event).ok());
  EXPECT_THAT(log, ElementsAre(1, 2, 3));
}

TEST_P(DeviceConformanceTest, AnEventThatWasNeverRecordedHoldsNobody) {
  const auto event = device_->MakeEvent();
  const auto stream = device_->MakeStream();
  std::vector<int> log;
  stream->Wait(*event, WaitReason::kUnitUpdated);
  stream->Enqueue(Append(log, 1));
  ASSERT_TRUE(device_->Drain().ok());
  ASSERT_TRUE(device_->Await(*event).ok());
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_P(DeviceConformanceTest, AwaitReturnsWhenTheRecordIsReached) {
  const auto event = device_->MakeEvent();
  const auto stream = device_->MakeStream();
  std::vector<int> log;
  stream->Enqueue(Append(log, 1));
  stream->Record(*event);
  ASSERT_TRUE(device_->Await(*event).ok());
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_P(DeviceConformanceTest, TheFirstErrorStaysAndDropsTheRest) {
  const auto event = device_->MakeEvent();
  const auto first = device_->MakeStream();
  const auto second = device_->MakeStream();
  std::vector<int> log;
  first->Enqueue(Append(log, 1));
  first->Enqueue([](Launcher&) { return absl::DataLossError("first"); });
  first->Enqueue([](Launcher&) { return absl::DataLossError("second"); });
  first->Enqueue(Append(log, 2));
  first->Record(*event);
  second->Wait(*event, WaitReason::kNorm);
  second->Enqueue(Append(log, 3));
  EXPECT_THAT(std::string(device_->Await(*event).message()), HasSubstr("first"));
  EXPECT_THAT(std::string(device_->Drain().message()), HasSubstr("first"));
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_P(DeviceConformanceTest, CopiesAndFillsDeviceMemory) {
  auto buffer = device_->Allocate(1000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ((*buffer)->size_bytes(), 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);

  const auto stream = device_->MakeStream();
  const std::string sent = "weights";
  std::string received(sent.size() + 1, '\0');
  stream->Enqueue([&](Launcher& launcher) {
    launcher.Fill((*buffer)->data(), 'x', 1000);
    launcher.CopyToDevice((*buffer)->data(), sent.data(), static_cast<int64_t>(sent.size()));
    launcher.CopyToHost(received.data(), (*buffer)->data(), static_cast<int64_t>(received.size()));
    return absl::OkStatus();
  });
  ASSERT_TRUE(device_->Drain().ok());
  EXPECT_EQ(received, "weightsx");
}

TEST_P(DeviceConformanceTest, RefusesMemoryThatThereIsNot) {
  EXPECT_EQ(device_->Allocate(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(DeviceConformanceTest, BusyAndWaitsAddUpToWallTime) {
  const auto event = device_->MakeEvent();
  const auto first = device_->MakeStream();
  const auto second = device_->MakeStream();
  std::vector<int> log;
  for (int i = 0; i < 20; ++i) {
    first->Enqueue(Append(log, i));
    first->Record(*event);
    second->Wait(*event, WaitReason::kGradientReady);
    second->Enqueue([](Launcher&) { return absl::OkStatus(); });
    second->Record(*event);
    first->Wait(*event, WaitReason::kSlabFree);
  }
  ASSERT_TRUE(device_->Drain().ok());
  for (const auto* stream : {first.get(), second.get()}) {
    const StreamFigures figures = stream->Figures();
    absl::Duration sum = figures.busy;
    for (const absl::Duration wait : figures.waits) {
      sum += wait;
    }
    EXPECT_EQ(sum, figures.wall);
    EXPECT_GT(figures.busy, absl::ZeroDuration());
    EXPECT_EQ(figures.operation_count, 20);
  }
  EXPECT_GT(first->Figures().wait(WaitReason::kSlabFree), absl::ZeroDuration());
  EXPECT_GT(second->Figures().wait(WaitReason::kGradientReady), absl::ZeroDuration());
  EXPECT_EQ(second->Figures().wait(WaitReason::kSlabFree), absl::ZeroDuration());
}

TEST_P(DeviceConformanceTest, AStreamFinishesItsWorkBeforeItGoes) {
  std::vector<int> log;
  {
    const auto stream = device_->MakeStream();
    for (int i = 0; i < 10; ++i) {
      stream->Enqueue(Append(log, i));
    }
  }
  EXPECT_EQ(log.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, DeviceConformanceTest,
    testing::Values(Backend{"Cpu", [] { return std::make_unique<CpuDevice>(TestClock()); }},
                    Backend{"Virtual", [] { return std::make_unique<VirtualDevice>(17); }}),
    [](const testing::TestParamInfo<Backend>& info) { return info.param.name; });

TEST(VirtualDeviceTest, FreshMemoryIsPoisoned) {
  VirtualDevice device(1);
  auto buffer = device.Allocate(64);
  float value = 0;
  std::memcpy(&value, (*buffer)->data(), sizeof(value));
  EXPECT_NE(value, value);
}

TEST(VirtualDeviceTest, TheSameSeedGivesTheSameRun) {
  std::vector<std::string> runs;
  for (const uint32_t seed : {5u, 5u, 6u}) {
    VirtualDevice device(seed);
    const auto first = device.MakeStream();
    const auto second = device.MakeStream();
    std::vector<int> log;
    for (int i = 0; i < 50; ++i) {
      first->Enqueue(Append(log, 1));
      second->Enqueue(Append(log, 2));
    }
    ASSERT_TRUE(device.Drain().ok());
    runs.emplace_back();
    for (const int entry : log) {
      runs.back() += std::to_string(entry);
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

}  // namespace
}  // namespace megatrain
