// What every backend of Device must do: a suite that a test of the backend instantiates with
// INSTANTIATE_TEST_SUITE_P(Name, DeviceConformanceTest, testing::Values(...)).

#ifndef RUNTIME_DEVICE_DEVICE_CONFORMANCE_H_
#define RUNTIME_DEVICE_DEVICE_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "runtime/device/device.h"

namespace megatrain {

struct DeviceBackend {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

class DeviceConformanceTest : public testing::TestWithParam<DeviceBackend> {
 protected:
  const std::unique_ptr<Device> device_ = GetParam().make();
};

inline std::string DeviceBackendName(const testing::TestParamInfo<DeviceBackend>& info) {
  return info.param.name;
}

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_DEVICE_CONFORMANCE_H_
