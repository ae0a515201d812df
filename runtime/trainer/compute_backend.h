// What trains a model: the parts that differ between processors and GPUs.

#ifndef RUNTIME_TRAINER_COMPUTE_BACKEND_H_
#define RUNTIME_TRAINER_COMPUTE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/device.h"
#include "runtime/device/device_math.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/layer_template.h"
#include "runtime/planner/machine.h"

namespace megatrain {

// Makes the parts of one pipeline, and says what it makes them on. Outlives what it made. Made once
// a process and used by one thread at a time.
class ComputeBackend {
 public:
  virtual ~ComputeBackend() = default;

  virtual Backend kind() const = 0;

  // `clock` outlives the device.
  virtual absl::StatusOr<std::unique_ptr<Device>> MakeDevice(Clock& clock) = 0;
  virtual std::unique_ptr<DeviceMath> MakeMath() = 0;

  using LogLine = std::function<void(const std::string& line)>;

  struct TemplateOptions {
    ComputeDtype dtype;
    AttentionMode attention;
    MicroBatchLimits limits;
    LogLine log = nullptr;  // hears of what takes long while they are made
  };
  // `layout` is MakeModelLayout of `config`. UNIMPLEMENTED names what of the shape is not served.
  virtual absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeTemplates(
      const ModelConfig& config, const ModelLayout& layout, const TemplateOptions& options) = 0;

  // Pins host memory for the device's copies; nullptr where the device is the host.
  virtual PagePinner* pinner() = 0;

  struct DeviceMemory {
    int64_t total_bytes = 0;
    int64_t free_bytes = 0;
  };
  // Now, with what libraries hold of it counted as taken. All 0 where the device is the host.
  virtual absl::StatusOr<DeviceMemory> ReadDeviceMemory() = 0;

  // The device in words, such as "NVIDIA H200, driver CUDA 13.0".
  virtual std::string DeviceName() = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_COMPUTE_BACKEND_H_
