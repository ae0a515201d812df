#include "runtime/model/head.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/model/workspace_size.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/rms_norm.h"
#include "runtime/ops/rows.h"
#include "runtime/ops/tensor_view.h"

namespace megatrain {
namespace {

// A range of the rows with a loss.
struct Chunk {
  int64_t first;
  int64_t rows;
};

// The hidden states at the loss positions, fp32.
at::Tensor LossRows(const HeadInputTensors& input) {
  const auto count = static_cast<int64_t>(input.loss_positions.size());
  const at::Tensor rows_ND =
      Uninitialized({count, input.hidden_TD.size(1)}, input.hidden_TD.scalar_type());
  GatherRows(input.hidden_TD, input.loss_positions, rows_ND);
  return AsFloat(rows_ND);
}

// Writes the chunk's losses; with gradients also its rows of `normed_gradient_ND`.
void RunChunk(const HeadInputTensors& input, Chunk chunk, const at::Tensor& normed_ND,
              std::span<double> losses, const HeadGradientTensors* gradients,
              const at::Tensor& normed_gradient_ND) {
  const at::Tensor rows_ND = normed_ND.narrow(0, chunk.first, chunk.rows);
  const auto targets = input.loss_targets.subspan(chunk.first, chunk.rows);
  const at::Tensor logits_NV = Uninitialized({chunk.rows, input.matrix_VD.size(0)}, at::kFloat);
  LinearForward(rows_ND, input.matrix_VD, logits_NV);
  const at::Tensor row_sum_N1 =
      CrossEntropyForward(logits_NV, targets, losses.subspan(chunk.first, chunk.rows));
  if (gradients == nullptr) {
    return;
  }
  CrossEntropyBackward(logits_NV, row_sum_N1, targets, gradients->loss_scale);
  LinearBackwardWeight(logits_NV, rows_ND, gradients->matrix_VD);
  LinearBackwardInput(logits_NV, input.matrix_VD,
                      normed_gradient_ND.narrow(0, chunk.first, chunk.rows));
}

HeadResult Sum(std::span<const double> losses) {
  HeadResult result;
  for (size_t i = 0; i < losses.size(); ++i) {
    result.loss_sum += losses[i];
    if (result.first_nonfinite < 0 && !std::isfinite(losses[i])) {
      result.first_nonfinite = static_cast<int>(i);
    }
  }
  return result;
}

void BackwardNorm(const HeadInputTensors& input, const at::Tensor& rows_ND,
                  const at::Tensor& factor_N1, const at::Tensor& normed_gradient_ND,
                  const HeadGradientTensors& gradients) {
  const at::Tensor row_gradients_ND = Uninitialized(rows_ND.sizes(), at::kFloat);
  row_gradients_ND.zero_();
  RmsNormBackward({.x_TD = rows_ND,
                   .weight_D = input.norm_D,
                   .inverse_rms_T1 = factor_N1,
                   .normed_gradient_TD = normed_gradient_ND,
                   .weight_gradient_D = gradients.norm_D,
                   .x_gradient_TD = row_gradients_ND});
  ScatterRows(row_gradients_ND.to(gradients.hidden_TD.scalar_type()), input.loss_positions,
              gradients.hidden_TD);
}

}  // namespace

HeadResult RunHead(const HeadInputTensors& input, const HeadGradientTensors* gradients) {
  const auto count = static_cast<int64_t>(input.loss_positions.size());
  if (count == 0) {
    if (gradients != nullptr) {
      gradients->hidden_TD.zero_();
    }
    return {};
  }
  const at::Tensor rows_ND = LossRows(input);
  const at::Tensor normed_ND = Uninitialized(rows_ND.sizes(), at::kFloat);
  const at::Tensor factor_N1 = RmsNormForward(rows_ND, input.norm_D, input.norm_epsilon, normed_ND);
  at::Tensor normed_gradient_ND;
  if (gradients != nullptr) {
    normed_gradient_ND = Uninitialized(rows_ND.sizes(), at::kFloat);
  }
  std::vector<double> losses(count);
  const int64_t step = HeadChunkRows(input.matrix_VD.size(0), count);
  for (int64_t first = 0; first < count; first += step) {
    RunChunk(input, {.first = first, .rows = std::min(step, count - first)}, normed_ND, losses,
             gradients, normed_gradient_ND);
  }
  if (gradients != nullptr) {
    BackwardNorm(input, rows_ND, factor_N1, normed_gradient_ND, *gradients);
  }
  return Sum(losses);
}

}  // namespace megatrain
