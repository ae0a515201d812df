// What a matrix product may use while it runs, for planners that know nothing of CUDA.

#ifndef RUNTIME_KERNELS_MATMUL_SCRATCH_H_
#define RUNTIME_KERNELS_MATMUL_SCRATCH_H_

#include <cstdint>

namespace megatrain {

// Device memory that every call of MatrixMultiplier is given.
inline constexpr int64_t kMatmulScratchBytes = int64_t{64} << 20;

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_SCRATCH_H_
