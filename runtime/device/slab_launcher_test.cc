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
    EXPECT_EQ(target, source) << size_bytes << " bytes, when the call returns";
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
  late_.DoAll();
  EXPECT_EQ(first_copy, first);
  EXPECT_EQ(second_copy, second);
  EXPECT_EQ(back, first);
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
