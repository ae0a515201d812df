#include "runtime/kernels/matmul_plan.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/matmul_scratch.h"

namespace megatrain {
namespace {

cudaDataType_t CudaType(ComputeDtype dtype) {
  return dtype == ComputeDtype::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

template <typename T>
absl::Status SetOperation(MatmulPlan& plan, cublasLtMatmulDescAttributes_t attribute, T value) {
  return CublasStatus(
      cublasLtMatmulDescSetAttribute(&plan.operation, attribute, &value, sizeof(value)),
      "cublasLtMatmulDescSetAttribute");
}

template <typename T>
absl::Status SetPreference(cublasLtMatmulPreferenceOpaque_t& preference,
                           cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return CublasStatus(
      cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

absl::Status InitLayout(cublasLtMatrixLayoutOpaque_t& layout, ComputeDtype dtype, int64_t rows,
                        int64_t cols, int64_t leading) {
  return CublasStatus(cublasLtMatrixLayoutInit(&layout, CudaType(dtype), rows, cols, leading),
                      "cublasLtMatrixLayoutInit");
}

absl::Status InitOperation(const MatmulProblem& problem, MatmulPlan& plan) {
  // COMPUTE_32F on float32 inputs is fp32 throughout: TF32 would be COMPUTE_32F_FAST_TF32.
  MT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "cublasLtMatmulDescInit"));
  MT_RETURN_IF_ERROR(SetOperation(plan, CUBLASLT_MATMUL_DESC_TRANSA,
                                  problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  MT_RETURN_IF_ERROR(SetOperation(plan, CUBLASLT_MATMUL_DESC_TRANSB,
                                  problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (!problem.has_bias) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(SetOperation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
  MT_RETURN_IF_ERROR(SetOperation(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                  static_cast<int32_t>(CudaType(problem.output_dtype))));
  // The heuristic reads the pointer's alignment, and nothing else of it.
  return SetOperation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(16));
}

absl::Status InitLayouts(const MatmulProblem& p, MatmulPlan& plan) {
  MT_RETURN_IF_ERROR(InitLayout(plan.a, p.input_dtype, p.transpose_a ? p.k : p.m,
                                p.transpose_a ? p.m : p.k, p.lda));
  MT_RETURN_IF_ERROR(InitLayout(plan.b, p.input_dtype, p.transpose_b ? p.n : p.k,
                                p.transpose_b ? p.k : p.n, p.ldb));
  MT_RETURN_IF_ERROR(InitLayout(plan.c, p.output_dtype, p.m, p.n, p.ldc));
  return InitLayout(plan.d, p.output_dtype, p.m, p.n, p.ldd);
}

// All but the algorithm.
absl::StatusOr<MatmulPlan> Describe(const MatmulProblem& problem) {
  MatmulPlan plan{};
  MT_RETURN_IF_ERROR(InitOperation(problem, plan));
  MT_RETURN_IF_ERROR(InitLayouts(problem, plan));
  return plan;
}

absl::Status InitPreference(cublasLtMatmulPreferenceOpaque_t& preference) {
  MT_RETURN_IF_ERROR(
      CublasStatus(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit"));
  MT_RETURN_IF_ERROR(SetPreference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                   static_cast<uint64_t>(kMatmulScratchBytes)));
  // Parts of a sum meet in fp32 and are rounded once, not in the output's dtype.
  MT_RETURN_IF_ERROR(SetPreference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                   static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                                         CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    MT_RETURN_IF_ERROR(SetPreference(preference, attribute, uint32_t{16}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CublasStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(what, ": ", cublasLtGetStatusString(status)));
}

absl::StatusOr<std::vector<MatmulPlan>> FindMatmulPlans(cublasLtHandle_t handle,
                                                        const MatmulProblem& problem, int most) {
  MT_ASSIGN_OR_RETURN(MatmulPlan plan, Describe(problem));
  cublasLtMatmulPreferenceOpaque_t preference;
  MT_RETURN_IF_ERROR(InitPreference(preference));
  std::vector<cublasLtMatmulHeuristicResult_t> found(most);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, &plan.operation, &plan.a, &plan.b, &plan.c, &plan.d,
                                     &preference, most, found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) {
    return absl::UnimplementedError(
        absl::StrCat("cuBLASLt has no algorithm for a product of m = ", problem.m,
                     ", n = ", problem.n, ", k = ", problem.k));
  }
  MT_RETURN_IF_ERROR(CublasStatus(status, "cublasLtMatmulAlgoGetHeuristic"));
  std::vector<MatmulPlan> plans;
  for (int i = 0; i < count; ++i) {
    plan.algorithm = found[i].algo;
    plans.push_back(plan);
  }
  return plans;
}

absl::StatusOr<MatmulPlan> MatmulPlanWith(cublasLtHandle_t handle,
                                          const cublasLtMatmulAlgo_t& algorithm,
                                          const MatmulProblem& problem) {
  MT_ASSIGN_OR_RETURN(MatmulPlan plan, Describe(problem));
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, &plan.operation, &plan.a, &plan.b,
                                                        &plan.c, &plan.d, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > size_t{kMatmulScratchBytes}) {
    return absl::UnimplementedError(absl::StrCat(
        "cuBLASLt: an algorithm does not serve a product of m = ", problem.m, ", n = ", problem.n,
        ", k = ", problem.k, ": ", cublasLtGetStatusString(status)));
  }
  plan.algorithm = algorithm;
  return plan;
}

absl::Status RunMatmul(cublasLtHandle_t handle, MatmulPlan plan, const MatmulOperands& operands,
                       void* scratch, cudaStream_t stream) {
  if (operands.bias != nullptr) {
    MT_RETURN_IF_ERROR(SetOperation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias));
  }
  const float alpha = 1.0f;
  return CublasStatus(
      cublasLtMatmul(handle, &plan.operation, &alpha, operands.a, &plan.a, operands.b, &plan.b,
                     &operands.beta, operands.c, &plan.c, operands.d, &plan.d, &plan.algorithm,
                     scratch, kMatmulScratchBytes, stream),
      "cublasLtMatmul");
}

}  // namespace megatrain
