#include "runtime/device/virtual_device.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/device/device_conformance.h"

namespace megatrain {
namespace {

std::unique_ptr<Device> MakeVirtualDevice() { return std::make_unique<VirtualDevice>(17); }

INSTANTIATE_TEST_SUITE_P(Backends, DeviceConformanceTest,
                         testing::Values(DeviceBackend{"Virtual", MakeVirtualDevice}),
                         DeviceBackendName);

Work Append(std::vector<int>& log, int value) {
  return [&log, value](Launcher&) {
    log.push_back(value);
    return absl::OkStatus();
  };
}

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
    const auto first = device.MakeStream(StreamPlace::kDevice);
    const auto second = device.MakeStream(StreamPlace::kDevice);
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
