// A linear layer's products in cuBLASLt's terms: what is multiplied, and where it lies.

#ifndef RUNTIME_KERNELS_MATMUL_CALL_H_
#define RUNTIME_KERNELS_MATMUL_CALL_H_

#include <algorithm>
#include <compare>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// A row-major matrix in device memory. `data` is 16-byte aligned.
struct MatrixView {
  void* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;  // elements from one row to the next, >= cols
};

// What is added to y = x W^T before it is rounded, at most one of the two, and y's dtype.
struct MatmulForwardOptions {
  const void* bias = nullptr;          // [out] in `dtype`
  const MatrixView* addend = nullptr;  // [t, out] in `dtype`; may be y itself
  bool float_output = false;           // y is fp32 whatever `dtype`; no bias, no addend
};

// D[m, n] = op(A)[m, k] op(B)[k, n] + beta C[m, n] (+ bias[m] to every column), all of them
// column-major with leading dimensions, as cuBLASLt wants them. A row-major matrix is its
// transpose in column-major, so D is the transpose of the result wanted. This is all that the
// choice of an algorithm may depend on.
struct MatmulProblem {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldc, ldd;
  ComputeDtype input_dtype;   // of A and B
  ComputeDtype output_dtype;  // of C, D and bias
  bool has_bias;

  double Operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  // With what lies between columns; D's are C's too.
  int64_t ElementsOfA() const { return lda * (transpose_a ? m : k); }
  int64_t ElementsOfB() const { return ldb * (transpose_b ? k : n); }
  int64_t ElementsOfD() const { return std::max(ldc, ldd) * n; }

  auto operator<=>(const MatmulProblem&) const = default;
};

struct MatmulOperands {
  const void* a;
  const void* b;
  const void* c;  // d where nothing is added
  void* d;
  const void* bias;
  float beta;
};

struct MatmulCall {
  MatmulProblem problem;
  MatmulOperands operands;
};

// The three products of MatrixMultiplier. INVALID_ARGUMENT when shapes do not fit together or
// memory is not aligned.
absl::StatusOr<MatmulCall> ForwardCall(const MatrixView& x, const MatrixView& weight,
                                       const MatrixView& y, const MatmulForwardOptions& options,
                                       ComputeDtype dtype);
absl::StatusOr<MatmulCall> BackwardInputCall(const MatrixView& dy, const MatrixView& weight,
                                             const MatrixView& dx, bool accumulate,
                                             ComputeDtype dtype);
absl::StatusOr<MatmulCall> BackwardWeightCall(const MatrixView& dy, const MatrixView& x,
                                              float* weight_gradient, bool accumulate,
                                              ComputeDtype dtype);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_CALL_H_
