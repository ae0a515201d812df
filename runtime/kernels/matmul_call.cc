#include "runtime/kernels/matmul_call.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// What every algorithm may rely on, so that the choice of one does not depend on addresses.
constexpr uintptr_t kAlignmentBytes = 16;

absl::Status CheckMemory(const void* data, const char* name) {
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % kAlignmentBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix product: ", name, " must be 16-byte aligned device memory"));
  }
  return absl::OkStatus();
}

absl::Status CheckMatrix(const MatrixView& matrix, int64_t rows, int64_t cols, const char* name) {
  MT_RETURN_IF_ERROR(CheckMemory(matrix.data, name));
  if (matrix.rows != rows || matrix.cols != cols || matrix.stride < cols || rows < 1 || cols < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("matrix product: ", name, " is [", matrix.rows, ", ", matrix.cols,
                     "] with a row stride of ", matrix.stride, ", but the other matrices ask for [",
                     rows, ", ", cols, "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckForwardOptions(const MatrixView& y, const MatmulForwardOptions& options) {
  if ((options.bias != nullptr) + (options.addend != nullptr) + options.float_output > 1) {
    return absl::InvalidArgumentError(
        "matrix product: bias, addend and float output exclude one another");
  }
  if (options.bias != nullptr) {
    return CheckMemory(options.bias, "bias");
  }
  if (options.addend != nullptr) {
    return CheckMatrix(*options.addend, y.rows, y.cols, "addend");
  }
  return absl::OkStatus();
}

}  // namespace

// y^T[out, t] = W[out, in] x^T[in, t]. Column-major memory holds W^T and x^T.
absl::StatusOr<MatmulCall> ForwardCall(const MatrixView& x, const MatrixView& weight,
                                       const MatrixView& y, const MatmulForwardOptions& options,
                                       ComputeDtype dtype) {
  MT_RETURN_IF_ERROR(CheckMatrix(weight, weight.rows, weight.cols, "weight"));
  MT_RETURN_IF_ERROR(CheckMatrix(x, x.rows, weight.cols, "x"));
  MT_RETURN_IF_ERROR(CheckMatrix(y, x.rows, weight.rows, "y"));
  MT_RETURN_IF_ERROR(CheckForwardOptions(y, options));
  const MatrixView& c = options.addend == nullptr ? y : *options.addend;
  return MatmulCall{
      .problem = {.m = weight.rows,
                  .n = x.rows,
                  .k = weight.cols,
                  .transpose_a = true,
                  .transpose_b = false,
                  .lda = weight.stride,
                  .ldb = x.stride,
                  .ldc = c.stride,
                  .ldd = y.stride,
                  .input_dtype = dtype,
                  .output_dtype = options.float_output ? ComputeDtype::kFloat32 : dtype,
                  .has_bias = options.bias != nullptr},
      .operands = {.a = weight.data,
                   .b = x.data,
                   .c = c.data,
                   .d = y.data,
                   .bias = options.bias,
                   .beta = options.addend == nullptr ? 0.0f : 1.0f}};
}

// dx^T[in, t] = W^T[in, out] dy^T[out, t].
absl::StatusOr<MatmulCall> BackwardInputCall(const MatrixView& dy, const MatrixView& weight,
                                             const MatrixView& dx, bool accumulate,
                                             ComputeDtype dtype) {
  MT_RETURN_IF_ERROR(CheckMatrix(weight, weight.rows, weight.cols, "weight"));
  MT_RETURN_IF_ERROR(CheckMatrix(dy, dy.rows, weight.rows, "dy"));
  MT_RETURN_IF_ERROR(CheckMatrix(dx, dy.rows, weight.cols, "dx"));
  return MatmulCall{.problem = {.m = weight.cols,
                                .n = dy.rows,
                                .k = weight.rows,
                                .transpose_a = false,
                                .transpose_b = false,
                                .lda = weight.stride,
                                .ldb = dy.stride,
                                .ldc = dx.stride,
                                .ldd = dx.stride,
                                .input_dtype = dtype,
                                .output_dtype = dtype,
                                .has_bias = false},
                    .operands = {.a = weight.data,
                                 .b = dy.data,
                                 .c = dx.data,
                                 .d = dx.data,
                                 .bias = nullptr,
                                 .beta = accumulate ? 1.0f : 0.0f}};
}

// dW^T[in, out] = x^T[in, t] dy[t, out]. Column-major memory holds x^T and dy^T.
absl::StatusOr<MatmulCall> BackwardWeightCall(const MatrixView& dy, const MatrixView& x,
                                              float* weight_gradient, bool accumulate,
                                              ComputeDtype dtype) {
  MT_RETURN_IF_ERROR(CheckMatrix(dy, dy.rows, dy.cols, "dy"));
  MT_RETURN_IF_ERROR(CheckMatrix(x, dy.rows, x.cols, "x"));
  MT_RETURN_IF_ERROR(CheckMemory(weight_gradient, "weight gradient"));
  return MatmulCall{.problem = {.m = x.cols,
                                .n = dy.cols,
                                .k = dy.rows,
                                .transpose_a = false,
                                .transpose_b = true,
                                .lda = x.stride,
                                .ldb = dy.stride,
                                .ldc = x.cols,
                                .ldd = x.cols,
                                .input_dtype = dtype,
                                .output_dtype = ComputeDtype::kFloat32,
                                .has_bias = false},
                    .operands = {.a = x.data,
                                 .b = dy.data,
                                 .c = weight_gradient,
                                 .d = weight_gradient,
                                 .bias = nullptr,
                                 .beta = accumulate ? 1.0f : 0.0f}};
}

}  // namespace megatrain
