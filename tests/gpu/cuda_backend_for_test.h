#ifndef TESTS_GPU_CUDA_BACKEND_FOR_TEST_H_
#define TESTS_GPU_CUDA_BACKEND_FOR_TEST_H_

#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// The backend of the first GPU, one a process. Aborts, with the reason, where there is none.
ComputeBackend& CudaBackendForTest();

}  // namespace megatrain

#endif  // TESTS_GPU_CUDA_BACKEND_FOR_TEST_H_
