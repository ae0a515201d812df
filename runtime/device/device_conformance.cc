#include "runtime/device/device_conformance.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Work Append(std::vector<int>& log, int value) {
  return [&log, value](Launcher&) {
    log.push_back(value);
    return absl::OkStatus();
  };
}

absl::Duration Sum(const StreamFigures& figures) {
  absl::Duration sum = figures.busy;
  for (const absl::Duration wait : figures.waits) {
    sum += wait;
  }
  return sum;
}

}  // namespace

TEST_P(DeviceConformanceTest, AStreamKeepsItsOrder) {
  const auto stream = device_->MakeStream(StreamPlace::kDevice);
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
    const auto first = device_->MakeStream(StreamPlace::kDevice);
    const auto second = device_->MakeStream(StreamPlace::kDevice);
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

// A stream that yields and one that does not add to one list in turns.
TEST_P(DeviceConformanceTest, AYieldingStreamKeepsOrderAndEvents) {
  constexpr int kRounds = 30;
  const auto first = device_->MakeStream(StreamPlace::kDevice);
  const auto yielding = device_->MakeStream(StreamPlace::kDeviceYielding);
  const auto given = device_->MakeEvent();
  const auto taken = device_->MakeEvent();
  std::vector<int> log;
  std::vector<int> expected;
  for (int round = 0; round < kRounds; ++round) {
    first->Wait(*taken, WaitReason::kUnitUpdated);
    first->Enqueue(Append(log, 2 * round));
    first->Record(*given);
    yielding->Wait(*given, WaitReason::kNorm);
    yielding->Enqueue(Append(log, 2 * round + 1));
    yielding->Record(*taken);
    expected.insert(expected.end(), {2 * round, 2 * round + 1});
  }
  ASSERT_TRUE(device_->Await(*taken).ok());
  EXPECT_EQ(log, expected);
  const StreamFigures figures = yielding->Figures();
  EXPECT_EQ(Sum(figures), figures.wall);
  EXPECT_EQ(figures.operation_count, kRounds);
}

TEST_P(DeviceConformanceTest, AWaitMeansTheLatestRecordBeforeIt) {
  const auto event = device_->MakeEvent();
  const auto first = device_->MakeStream(StreamPlace::kDevice);
  const auto second = device_->MakeStream(StreamPlace::kDevice);
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
  const auto stream = device_->MakeStream(StreamPlace::kDevice);
  std::vector<int> log;
  stream->Wait(*event, WaitReason::kUnitUpdated);
  stream->Enqueue(Append(log, 1));
  ASSERT_TRUE(device_->Drain().ok());
  ASSERT_TRUE(device_->Await(*event).ok());
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_P(DeviceConformanceTest, AwaitReturnsWhenTheRecordIsReached) {
  const auto event = device_->MakeEvent();
  const auto stream = device_->MakeStream(StreamPlace::kDevice);
  std::vector<int> log;
  stream->Enqueue(Append(log, 1));
  stream->Record(*event);
  ASSERT_TRUE(device_->Await(*event).ok());
  EXPECT_THAT(log, ElementsAre(1));
}

TEST_P(DeviceConformanceTest, TheFirstErrorStaysAndDropsTheRest) {
  const auto event = device_->MakeEvent();
  const auto first = device_->MakeStream(StreamPlace::kDevice);
  const auto second = device_->MakeStream(StreamPlace::kDevice);
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

  const auto stream = device_->MakeStream(StreamPlace::kDevice);
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
  const auto first = device_->MakeStream(StreamPlace::kDevice);
  const auto second = device_->MakeStream(StreamPlace::kDevice);
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
    EXPECT_EQ(Sum(figures), figures.wall);
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
    const auto stream = device_->MakeStream(StreamPlace::kDevice);
    for (int i = 0; i < 10; ++i) {
      stream->Enqueue(Append(log, i));
    }
  }
  EXPECT_EQ(log.size(), 10u);
}

TEST_P(DeviceConformanceTest, HostMemoryForTheDeviceCanBeWrittenAndCopied) {
  auto host = device_->AllocateHost(1000);
  auto buffer = device_->Allocate(1000);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::memset((*host)->data(), 'y', 1000);
  const auto stream = device_->MakeStream(StreamPlace::kDevice);
  stream->Enqueue([&](Launcher& launcher) {
    launcher.CopyToDevice((*buffer)->data(), (*host)->data(), 1000);
    launcher.Fill((*buffer)->data(), 'x', 1);
    launcher.CopyToHost((*host)->data(), (*buffer)->data(), 1000);
    return absl::OkStatus();
  });
  ASSERT_TRUE(device_->Drain().ok());
  EXPECT_EQ(std::string(reinterpret_cast<char*>((*host)->data()), 3), "xyy");
}

// A host stream and a device stream hand one another a buffer, back and forth.
TEST_P(DeviceConformanceTest, StreamsOfBothPlacesSeeEachOthersResults) {
  constexpr int64_t kBytes = 4 << 20;
  constexpr int kRounds = 20;
  auto buffer = device_->Allocate(kBytes);
  auto source = device_->AllocateHost(kBytes);
  auto target = device_->AllocateHost(kBytes);
  ASSERT_TRUE(buffer.ok() && source.ok() && target.ok());
  const auto copies = device_->MakeStream(StreamPlace::kDevice);
  const auto host = device_->MakeStream(StreamPlace::kHost);
  const auto copied = device_->MakeEvent();
  const auto written = device_->MakeEvent();
  int wrong_rounds = 0;
  for (int round = 1; round <= kRounds; ++round) {
    host->Wait(*copied, WaitReason::kNorm);
    host->Enqueue([&, round](Launcher&) {
      const auto* read = (*target)->data();
      const auto last = static_cast<std::byte>(round - 1);
      const bool right = std::all_of(read, read + kBytes, [&](std::byte b) { return b == last; });
      wrong_rounds += round > 1 && !right ? 1 : 0;
      std::memset((*source)->data(), round, kBytes);
      return absl::OkStatus();
    });
    host->Record(*written);
    copies->Wait(*written, WaitReason::kUnitUpdated);
    copies->Enqueue([&](Launcher& launcher) {
      launcher.CopyToDevice((*buffer)->data(), (*source)->data(), kBytes);
      launcher.CopyToHost((*target)->data(), (*buffer)->data(), kBytes);
      return absl::OkStatus();
    });
    copies->Record(*copied);
  }
  ASSERT_TRUE(device_->Await(*copied).ok());
  EXPECT_EQ(wrong_rounds, 0);
  EXPECT_EQ((*target)->data()[kBytes - 1], static_cast<std::byte>(kRounds));
  const StreamFigures figures = host->Figures();
  EXPECT_EQ(Sum(figures), figures.wall);
  EXPECT_EQ(figures.operation_count, kRounds);
  EXPECT_GT(figures.wait(WaitReason::kNorm), absl::ZeroDuration());
  EXPECT_GT(copies->Figures().wait(WaitReason::kUnitUpdated), absl::ZeroDuration());
}

// What reuses memory of the host waits for a mark in its own thread.
TEST_P(DeviceConformanceTest, AMarkIsReachedAfterWhatTheStreamWaitsFor) {
  constexpr int64_t kBytes = 8 << 20;
  auto buffer = device_->Allocate(kBytes);
  auto target = device_->AllocateHost(kBytes);
  ASSERT_TRUE(buffer.ok() && target.ok());
  const auto first = device_->MakeStream(StreamPlace::kDevice);
  const auto second = device_->MakeStream(StreamPlace::kDevice);
  const auto filled = device_->MakeEvent();
  int wrong_rounds = 0;
  for (int round = 1; round <= 10; ++round) {
    first->Enqueue([&, round](Launcher& launcher) {
      launcher.Fill((*buffer)->data(), static_cast<uint8_t>(round), kBytes);
      return absl::OkStatus();
    });
    first->Record(*filled);
    second->Wait(*filled, WaitReason::kWeightsReady);
    second->Enqueue([&, round](Launcher& launcher) {
      launcher.AwaitMark(1);  // of the round before; at first of nothing
      launcher.CopyToHost((*target)->data(), (*buffer)->data(), kBytes);
      launcher.SetMark(1);
      launcher.AwaitMark(1);
      const auto* read = (*target)->data();
      const auto want = static_cast<std::byte>(round);
      wrong_rounds +=
          std::all_of(read, read + kBytes, [&](std::byte b) { return b == want; }) ? 0 : 1;
      return absl::OkStatus();
    });
    ASSERT_TRUE(device_->Drain().ok());
  }
  EXPECT_EQ(wrong_rounds, 0);
}

}  // namespace megatrain
