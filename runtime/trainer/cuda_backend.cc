#include "runtime/trainer/cuda_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/cuda_device.h"
#include "runtime/device/cuda_device_info.h"
#include "runtime/device/cuda_page_pinner.h"
#include "runtime/kernels/cuda_device_math.h"
#include "runtime/kernels/matmul_choices.h"
#include "runtime/kernels/matmul_tuner.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/cuda_templates.h"
#include "runtime/model/matmul_samples.h"

namespace megatrain {
namespace {

constexpr int kOrdinal = 0;

// CUDA counts its versions as 1000 * major + 10 * minor.
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

class CudaBackend final : public ComputeBackend {
 public:
  CudaBackend(CudaDeviceInfo info, std::string matmul_choices_path, FileSystem& files)
      : info_(std::move(info)),
        matmul_choices_path_(std::move(matmul_choices_path)),
        files_(files) {}

  Backend kind() const override { return Backend::kCuda; }

  absl::StatusOr<std::unique_ptr<Device>> MakeDevice(Clock& clock) override {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Create(clock, kOrdinal));
    return device;
  }

  std::unique_ptr<DeviceMath> MakeMath() override { return std::make_unique<CudaDeviceMath>(); }

  absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeTemplates(
      const ModelConfig& config, const ModelLayout& layout,
      const TemplateOptions& options) override {
    MT_RETURN_IF_ERROR(CheckCudaTrainable(config));
    MT_ASSIGN_OR_RETURN(MatmulChoices choices, ChoicesFor(config, options));
    return MakeCudaTemplates(config, layout, options.dtype, options.attention, options.limits,
                             std::move(choices));
  }

  PagePinner* pinner() override { return &pinner_; }

  absl::StatusOr<DeviceMemory> ReadDeviceMemory() override {
    MT_ASSIGN_OR_RETURN(const CudaDeviceInfo now, ReadCudaDeviceInfo(kOrdinal));
    return DeviceMemory{.total_bytes = now.total_bytes, .free_bytes = now.free_bytes};
  }

  std::string DeviceName() override {
    return absl::StrCat(info_.name, ", driver's CUDA ", VersionText(info_.driver_version),
                        ", CUDA ", VersionText(info_.runtime_version));
  }

 private:
  absl::StatusOr<MatmulChoices> ChoicesFor(const ModelConfig& config,
                                           const TemplateOptions& options) {
    if (matmul_choices_path_.empty()) {
      return MatmulChoices{};
    }
    MT_ASSIGN_OR_RETURN(const std::vector<MatmulSample> samples,
                        MatmulSamplesOf(MakeCudaShape(config, options.dtype, options.attention,
                                                      options.limits.tokens),
                                        config.qkv_bias, options.limits));
    MT_ASSIGN_OR_RETURN(const MatmulMachine machine, ReadMatmulMachine());
    return MatmulChoicesFile(files_, matmul_choices_path_, machine)
        .Complete(samples, [&options](const std::vector<MatmulSample>& missing) {
          if (options.log != nullptr) {
            options.log(DescribeMeasurement(missing));
          }
          return MeasureMatmulChoices(missing);
        });
  }

  const CudaDeviceInfo info_;
  const std::string matmul_choices_path_;
  FileSystem& files_;
  CudaPagePinner pinner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaBackend(std::string matmul_choices_path,
                                                                FileSystem& files) {
  MT_ASSIGN_OR_RETURN(CudaDeviceInfo info, ReadCudaDeviceInfo(kOrdinal));
  return std::make_unique<CudaBackend>(std::move(info), std::move(matmul_choices_path), files);
}

}  // namespace megatrain
