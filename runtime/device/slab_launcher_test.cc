#include "runtime/device/slab_launcher.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu_device.h"

namespace megatrain {
namespace {

constexpr int64_t kSlabBytes = 1000;

// A device that does nothing of what it is given before it must: the worst that a GPU may do.
class LateLauncher final : public Launcher {
 public:
  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    pending_.push_back({device, host, size_bytes, 0});
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    pending_.push_back({host, device, size_bytes, 0});
  }
  void Fill(void* device, uint8_t byte, int64_t size_bytes) override {
    pending_.push_back({device, nullptr, size_bytes, byte});
  }
  void SetMark(int mark) override { marks_[mark] = first_ + static_cast<int64_t>(pending_.size()); }
  void AwaitMark(int mark) override {
    while (first_ < marks_[mark]) {
      DoNext();
    }
  }
  void* native_stream() override { return nullptr; }

  int pending_count() const { return static_cast<int>(pending_.size()); }

  void DoAll() {
    while (!pending_.empty()) {
      DoNext();
    }
  }

 private:
  struct Call {
    void* to;
    const void* from;
    int64_t size_bytes;
    uint8_t byte;
  };

  void DoNext() {
    const Call call = pending_.front();
    pending_.erase(pending_.begin());
    ++first_;
    if (call.from == nullptr) {
      std::memset(call.to, call.byte, call.size_bytes);
    } else {
      std::memcpy(call.to, call.from, call.size_bytes);
    }
  }

  std::vector<Call> pending_;
  int64_t first_ = 0;  // calls that are done
  int64_t marks_[kMarkCount] = {};
};

std::vector<char> Numbers(int64_t size_bytes, int first) {
  std::vector<char> numbers(size_bytes);
  std::iota(numbers.begin(), numbers.end(), static_cast<char>(first));
  for (int64_t i = 0; i < size_bytes; ++i) {
    numbers[i] = static_cast<char>(numbers[i] ^ (i / kSlabBytes));
  }
  return numbers;
}

class SlabLauncherTest : public ::testing::Test {
 protected:
  SystemClock clock_;
  CpuDevice device_{clock_};
  std::unique_ptr<SlabLane> lane_ = SlabLane::Create(device_, kSlabBytes, /*threads=*/2).value();
  LateLauncher late_;
  const SlabLauncher::Reaches reaches_nothing_ = [](const void*) { return false; };
};

TEST_F(SlabLauncherTest, CopiesOfAnySizeArrive) {
  SlabLauncher launcher(late_, *lane_, reaches_nothing_);
  for (const int64_t size_bytes : {1, 999, 1000, 1001, 2999, 3000, 3001, 10'000}) {
    const std::vector<char> source = Numbers(size_bytes, 3);
    std::vector<char> on_device(size_bytes);
    std::vector<char> target(size_bytes);
    launcher.CopyToDevice(on_device.data(), source.data(), size_bytes);
    launcher.CopyToHost(target.data(), on_device.data(), size_bytes);
    launcher.FinishCopies();
    EXPECT_EQ(target, source) << size_bytes << " bytes";
  }
}

TEST_F(SlabLauncherTest, LargeCopiesAreSharedByThreads) {
  constexpr int64_t kBytes = (int64_t{9} << 20) + 17;
  lane_ = SlabLane::Create(device_, int64_t{4} << 20, /*threads=*/3).value();
  SlabLauncher launcher(late_, *lane_, reaches_nothing_);
  const std::vector<char> source = Numbers(kBytes, 5);
  std::vector<char> on_device(kBytes);
  std::vector<char> target(kBytes);
  launcher.CopyToDevice(on_device.data(), source.data(), kBytes);
  launcher.CopyToHost(target.data(), on_device.data(), kBytes);
  launcher.FinishCopies();
  EXPECT_TRUE(target == source);
}

TEST_F(SlabLauncherTest, TheSourceIsReadOnceTheStreamHasCaughtUp) {
  SlabLauncher launcher(late_, *lane_, reaches_nothing_);
  std::vector<char> source(5000, 'a');
  std::vector<char> on_device(5000);
  late_.Fill(source.data(), 'b', 5000);  // what the stream still has to wait for
  launcher.CopyToDevice(on_device.data(), source.data(), 5000);
  source.assign(5000, 'c');  // has been read: may change
  late_.DoAll();
  EXPECT_EQ(on_device, std::vector<char>(5000, 'b'));
}

TEST_F(SlabLauncherTest, CopiesOneAfterTheOtherDoNotMix) {
  SlabLauncher launcher(late_, *lane_, reaches_nothing_);
  const std::vector<char> first = Numbers(4500, 1);
  const std::vector<char> second = Numbers(4500, 77);
  std::vector<char> first_copy(4500);
  std::vector<char> second_copy(4500);
  std::vector<char> back(4500);
  launcher.CopyToDevice(first_copy.data(), first.data(), 4500);
  launcher.CopyToDevice(second_copy.data(), second.data(), 4500);
  launcher.CopyToHost(back.data(), first_copy.data(), 4500);
  launcher.FinishCopies();
  late_.DoAll();
  EXPECT_EQ(first_copy, first);
  EXPECT_EQ(second_copy, second);
  EXPECT_EQ(back, first);
}

TEST_F(SlabLauncherTest, ACopyToTheDeviceDoesNotWaitForTheOneBefore) {
  SlabLauncher launcher(late_, *lane_, reaches_nothing_);
  const std::vector<char> first = Numbers(1000, 1);
  const std::vector<char> second = Numbers(1000, 77);
  std::vector<char> first_copy(1000);
  std::vector<char> second_copy(1000);
  launcher.CopyToDevice(first_copy.data(), first.data(), 1000);
  launcher.CopyToDevice(second_copy.data(), second.data(), 1000);
  EXPECT_EQ(late_.pending_count(), 2) << "each in a slab of its own";
  late_.DoAll();
  EXPECT_EQ(first_copy, first);
  EXPECT_EQ(second_copy, second);
}

TEST_F(SlabLauncherTest, ACopyToTheHostDoesNotWaitForTheOneBefore) {
  const std::vector<char> first = Numbers(1000, 1);
  const std::vector<char> second = Numbers(2000, 77);
  std::vector<char> first_copy(1000);
  std::vector<char> second_copy(2000);
  {
    SlabLauncher launcher(late_, *lane_, reaches_nothing_);
    launcher.CopyToHost(first_copy.data(), first.data(), 1000);
    launcher.CopyToHost(second_copy.data(), second.data(), 2000);
    EXPECT_EQ(late_.pending_count(), 3) << "each in slabs of its own";
    std::vector<char> third_copy(1000);
    launcher.CopyToHost(third_copy.data(), first.data(), 1000);  // takes the first one's slab
    EXPECT_EQ(first_copy, first);
    EXPECT_EQ(late_.pending_count(), 3);
    launcher.FinishCopies();
    EXPECT_EQ(third_copy, first);
    EXPECT_EQ(second_copy, second);
    second_copy.assign(2000, 0);
    launcher.CopyToHost(second_copy.data(), second.data(), 2000);
  }
  EXPECT_EQ(second_copy, second) << "by the end of the work";
}

TEST_F(SlabLauncherTest, WhatWasCopiedToTheHostCanBeCopiedBack) {
  SlabLauncher launcher(late_, *lane_, reaches_nothing_);
  const std::vector<char> on_device = Numbers(1500, 9);
  std::vector<char> on_host(1500);
  std::vector<char> again(1500);
  launcher.CopyToHost(on_host.data(), on_device.data(), 1500);
  launcher.CopyToDevice(again.data(), on_host.data(), 1500);
  late_.DoAll();
  EXPECT_EQ(again, on_device);
}

TEST_F(SlabLauncherTest, EachWorkWaitsForWhatItsStreamWaitsFor) {
  std::vector<char> source(1000, 'a');
  std::vector<char> on_device(1000);
  for (const char next : {'b', 'c'}) {
    SlabLauncher launcher(late_, *lane_, reaches_nothing_);
    late_.Fill(source.data(), static_cast<uint8_t>(next), 1000);
    launcher.CopyToDevice(on_device.data(), source.data(), 1000);
    late_.DoAll();
    EXPECT_EQ(on_device, std::vector<char>(1000, next));
  }
}

TEST_F(SlabLauncherTest, WhatTheDeviceReachesTakesNoDetour) {
  std::vector<char> reached(100, 'r');
  const SlabLauncher::Reaches reaches = [&](const void* host) { return host == reached.data(); };
  SlabLauncher launcher(late_, *lane_, reaches);
  std::vector<char> on_device(100);
  launcher.CopyToDevice(on_device.data(), reached.data(), 100);
  reached.assign(100, 's');  // is read when the stream comes to it
  launcher.CopyToHost(reached.data(), on_device.data(), 50);
  EXPECT_EQ(on_device[0], 0);
  late_.DoAll();
  EXPECT_EQ(on_device, std::vector<char>(100, 's'));
}

}  // namespace
}  // namespace megatrain
