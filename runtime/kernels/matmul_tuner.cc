#include "runtime/kernels/matmul_tuner.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "runtime/base/status_macros.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/matmul_timer.h"

namespace megatrain {

absl::StatusOr<MatmulMachine> ReadMatmulMachine() {
  int device = 0;
  MT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
  cudaDeviceProp properties;
  MT_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  return MatmulMachine{.gpu = properties.name,
                       .library_version = static_cast<int64_t>(cublasLtGetVersion())};
}

absl::StatusOr<MatmulChoices> MeasureMatmulChoices(const std::vector<MatmulSample>& samples) {
  // 24 ms for each candidate that is near the best, then 200 where runs are long. The chip stays
  // warm from sample to sample.
  MatmulTiming timing{
      .warm_up_seconds = 0.3, .rounds = 6, .drop_factor = 1.04, .lasting_seconds = 0.2};
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<MatmulTimer> timer, MatmulTimer::Create(samples));
  MatmulChoices choices;
  for (const MatmulSample& sample : samples) {
    MT_ASSIGN_OR_RETURN(const std::vector<double> seconds, timer->Time(sample, timing));
    choices[sample.problem] = ChooseMatmul(seconds);
    timing.warm_up_seconds = 0;
  }
  return choices;
}

}  // namespace megatrain
