#include "runtime/device/cpu_device.h"

#include <memory>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/device/device_conformance.h"

namespace megatrain {
namespace {

std::unique_ptr<Device> MakeCpuDevice() {
  static SystemClock clock;
  return std::make_unique<CpuDevice>(clock);
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceConformanceTest,
                         testing::Values(DeviceBackend{"Cpu", MakeCpuDevice}), DeviceBackendName);

}  // namespace
}  // namespace megatrain
