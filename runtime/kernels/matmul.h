// Products of a linear layer, y = x W^T and its two gradients, through cuBLASLt.

#ifndef RUNTIME_KERNELS_MATMUL_H_
#define RUNTIME_KERNELS_MATMUL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/matmul_call.h"
#include "runtime/kernels/matmul_choices.h"
#include "runtime/kernels/matmul_scratch.h"
#include "runtime/model/layer_template.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace megatrain {

// Where a product runs, and the memory it may use: kMatmulScratchBytes, 256-byte aligned, left
// alone by others until the product is done.
struct MatmulContext {
  void* scratch;
  CUstream_st* stream;
};

// All sums are in fp32 and rounded once; float32 products are true fp32, without TF32. The
// algorithm for a shape, its strides and its epilogue is that of FindMatmulChoice in a given table,
// where it has one that serves, else cuBLASLt's first choice. It depends neither on timings nor on
// addresses: equal inputs and tables give equal bits. Thread-safe. Mismatched shapes and misaligned
// memory are INVALID_ARGUMENT.
class MatrixMultiplier {
 public:
  static constexpr int64_t kScratchBytes = kMatmulScratchBytes;

  // For the current device, on which `choices` were measured. Choices that cuBLASLt's list is too
  // short for are its first.
  static absl::StatusOr<std::unique_ptr<MatrixMultiplier>> Create(MatmulChoices choices = {});
  ~MatrixMultiplier();
  MatrixMultiplier(const MatrixMultiplier&) = delete;
  MatrixMultiplier& operator=(const MatrixMultiplier&) = delete;

  using ForwardOptions = MatmulForwardOptions;

  // y[t, out] = x[t, in] W[out, in]^T, plus what the options add.
  absl::Status Forward(const MatrixView& x, const MatrixView& weight, const MatrixView& y,
                       const ForwardOptions& options, ComputeDtype dtype,
                       const MatmulContext& context);

  // dx[t, in] = dy[t, out] W[out, in], added to what dx holds with `accumulate`.
  absl::Status BackwardInput(const MatrixView& dy, const MatrixView& weight, const MatrixView& dx,
                             bool accumulate, ComputeDtype dtype, const MatmulContext& context);

  // dW[out, in] = dy[t, out]^T x[t, in] in fp32, dense, added to what dW holds with `accumulate`.
  absl::Status BackwardWeight(const MatrixView& dy, const MatrixView& x, float* weight_gradient,
                              bool accumulate, ComputeDtype dtype, const MatmulContext& context);

 private:
  class State;
  explicit MatrixMultiplier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_H_
