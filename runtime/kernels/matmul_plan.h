// One matrix product as cuBLASLt runs it: descriptors and an algorithm.

#ifndef RUNTIME_KERNELS_MATMUL_PLAN_H_
#define RUNTIME_KERNELS_MATMUL_PLAN_H_

#include <cublasLt.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/matmul_call.h"

namespace megatrain {

absl::Status CublasStatus(cublasStatus_t status, const char* what);

// A value: descriptors are plain memory of cuBLASLt's.
struct MatmulPlan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  cublasLtMatmulAlgo_t algorithm;
};

// Up to `most` plans in the order of cuBLASLt's heuristic, which expects the first to be the
// fastest. UNIMPLEMENTED when there is none.
absl::StatusOr<std::vector<MatmulPlan>> FindMatmulPlans(cublasLtHandle_t handle,
                                                        const MatmulProblem& problem, int most);

// A plan for `problem` on the algorithm of another's. UNIMPLEMENTED when it does not serve.
absl::StatusOr<MatmulPlan> MatmulPlanWith(cublasLtHandle_t handle,
                                          const cublasLtMatmulAlgo_t& algorithm,
                                          const MatmulProblem& problem);

// Enqueues the product. `scratch`: kMatmulScratchBytes.
absl::Status RunMatmul(cublasLtHandle_t handle, MatmulPlan plan, const MatmulOperands& operands,
                       void* scratch, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_PLAN_H_
