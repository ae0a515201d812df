#include "runtime/device/copy_speed.h"

#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/slab_launcher.h"

namespace megatrain {
namespace {

TEST(CopySpeedTest, IsBytesByTime) {
  SystemClock clock;
  CpuDevice device(clock);
  const std::vector<char> host(int64_t{8} << 20, 'x');
  const auto speed = MeasureCopyToDevice(device, clock, host.data(), host.size());
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(*speed, 1e6);
  EXPECT_LT(*speed, 1e13);
}

TEST(CopySpeedTest, ThroughSlabsToo) {
  SystemClock clock;
  CpuDevice device(clock);
  const std::vector<char> host(int64_t{8} << 20, 'x');
  const auto lane = SlabLane::Create(device, int64_t{1} << 20, /*threads=*/1);
  ASSERT_TRUE(lane.ok()) << lane.status();
  const auto speed = MeasureCopyToDevice(device, clock, host.data(), host.size(), lane->get());
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(*speed, 1e6);
  EXPECT_LT(*speed, 1e13);
}

TEST(CopySpeedTest, AClockThatStandsStillGivesNone) {
  VirtualClock clock;
  CpuDevice device(clock);
  const std::vector<char> host(4096, 'x');
  EXPECT_EQ(MeasureCopyToDevice(device, clock, host.data(), host.size()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(CopySpeedTest, MoreThanTheDeviceHasIsAnError) {
  SystemClock clock;
  CpuDevice device(clock);
  const char byte = 0;
  EXPECT_EQ(MeasureCopyToDevice(device, clock, &byte, int64_t{1} << 46).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(device.Drain().ok()) << "the device is as it was";
}

}  // namespace
}  // namespace megatrain
