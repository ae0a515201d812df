#include "runtime/trainer/cpu_backend.h"

#include "absl/strings/str_cat.h"
#include "runtime/device/cpu_device.h"
#include "runtime/model/model_templates.h"
#include "runtime/ops/compute_threads.h"
#include "runtime/pipeline/host_math.h"

namespace megatrain {
namespace {

class CpuBackend final : public ComputeBackend {
 public:
  explicit CpuBackend(int compute_threads) : compute_threads_(compute_threads) {
    SetComputeThreads(compute_threads);
  }

  Backend kind() const override { return Backend::kCpu; }

  absl::StatusOr<std::unique_ptr<Device>> MakeDevice(Clock& clock) override {
    return std::make_unique<CpuDevice>(clock);
  }

  std::unique_ptr<DeviceMath> MakeMath() override { return std::make_unique<HostMath>(); }

  absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeTemplates(
      const ModelConfig& config, const ModelLayout& layout,
      const TemplateOptions& options) override {
    return MakeModelTemplates(config, layout, options.dtype);
  }

  PagePinner* pinner() override { return nullptr; }

  absl::StatusOr<DeviceMemory> ReadDeviceMemory() override { return DeviceMemory{}; }

  std::string DeviceName() override {
    return absl::StrCat("processors, ", compute_threads_, " compute threads");
  }

 private:
  const int compute_threads_;
};

}  // namespace

std::unique_ptr<ComputeBackend> MakeCpuBackend(int compute_threads) {
  return std::make_unique<CpuBackend>(compute_threads);
}

}  // namespace megatrain
