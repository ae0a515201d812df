#include "runtime/model/matmul_samples.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// A matrix of the model, and how its products differ from the plainest.
struct Linear {
  std::string name;
  int64_t in, out;
  bool bias = false;
  bool addend = false;          // the residual branch, in forward
  bool float_output = false;    // of forward
  int64_t gradient_stride = 0;  // of the output's gradient; 0: dense
};

// Nothing is read there: only shapes and alignment matter.
void* Anywhere() { return reinterpret_cast<void*>(uintptr_t{1} << 20); }

MatrixView View(int64_t rows, int64_t cols, int64_t stride = 0) {
  return {.data = Anywhere(), .rows = rows, .cols = cols, .stride = stride == 0 ? cols : stride};
}

// Through the functions that the multiplier calls: the problems are the same.
absl::Status AddProducts(const Linear& linear, int64_t rows, ComputeDtype dtype,
                         std::vector<MatmulSample>& samples) {
  const MatrixView x = View(rows, linear.in);
  const MatrixView weight = View(linear.out, linear.in);
  const MatrixView y = View(rows, linear.out);
  const MatrixView dy = View(rows, linear.out, linear.gradient_stride);
  MT_ASSIGN_OR_RETURN(const MatmulCall forward,
                      ForwardCall(x, weight, y,
                                  {.bias = linear.bias ? Anywhere() : nullptr,
                                   .addend = linear.addend ? &y : nullptr,
                                   .float_output = linear.float_output},
                                  dtype));
  MT_ASSIGN_OR_RETURN(const MatmulCall input,
                      BackwardInputCall(dy, weight, x, /*accumulate=*/false, dtype));
  MT_ASSIGN_OR_RETURN(const MatmulCall gradient,
                      BackwardWeightCall(dy, x, static_cast<float*>(Anywhere()),
                                         /*accumulate=*/true, dtype));
  samples.push_back({linear.name + " forward", forward.problem, linear.addend});
  samples.push_back({linear.name + " dx", input.problem, false});
  samples.push_back({linear.name + " dW", gradient.problem, true});
  return absl::OkStatus();
}

// A chunk, and what is left behind the last one unless FindMatmulChoice gives it the chunk's.
absl::Status AddHead(const CudaShape& shape, const MicroBatchLimits& limits,
                     std::vector<MatmulSample>& samples) {
  const int64_t loss_tokens = std::max<int64_t>(limits.tokens - limits.documents, 1);
  const HeadBuffers buffers = PlaceHead(shape, loss_tokens, /*workspace=*/nullptr);
  std::vector<int64_t> row_counts = {buffers.chunk_rows};
  if (const int64_t rest = loss_tokens % buffers.chunk_rows;
      rest > 0 && kMostTimesTokens * rest < buffers.chunk_rows) {
    row_counts.push_back(rest);
  }
  for (const int64_t rows : row_counts) {
    MT_RETURN_IF_ERROR(AddProducts({.name = absl::StrCat("head of ", rows),
                                    .in = shape.hidden_size,
                                    .out = shape.vocab_size,
                                    .float_output = true,
                                    .gradient_stride = buffers.logit_gradient_stride},
                                   rows, shape.attention.dtype, samples));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<MatmulSample>> MatmulSamplesOf(const CudaShape& shape, bool qkv_bias,
                                                          const MicroBatchLimits& limits) {
  const int64_t width = shape.hidden_size;
  const AttentionShape& attention = shape.attention;
  std::vector<MatmulSample> samples;
  for (const Linear& linear :
       {Linear{.name = "qkv", .in = width, .out = attention.QkvWidth(), .bias = qkv_bias},
        Linear{.name = "output", .in = attention.OutWidth(), .out = width, .addend = true},
        Linear{.name = "gate_up", .in = width, .out = 2 * shape.mlp_width},
        Linear{.name = "down", .in = shape.mlp_width, .out = width, .addend = true}}) {
    MT_RETURN_IF_ERROR(AddProducts(linear, limits.tokens, attention.dtype, samples));
  }
  MT_RETURN_IF_ERROR(AddHead(shape, limits, samples));
  return samples;
}

}  // namespace megatrain
