#include "runtime/pipeline/step_verdict.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace megatrain {
namespace {

// Keeps the divisor off zero, as torch.nn.utils.clip_grad_norm_ does.
constexpr double kClipEpsilon = 1e-6;

// A gradient beyond this has no bf16.
constexpr double kLargestNorm = 3.3895313892515355e38;

int DocumentOf(const MicroBatch& batch, int64_t token) {
  const auto next =
      std::upper_bound(batch.document_offsets.begin(), batch.document_offsets.end(), token);
  return static_cast<int>(next - batch.document_offsets.begin()) - 1;
}

class Judge {
 public:
  Judge(const ModelLayout& layout, const StepInput& input, const ResultsLayout& results_layout,
        std::byte* results)
      : layout_(layout), input_(input), results_layout_(results_layout), results_(results) {}

  StepResult Run() const {
    StepResult result;
    result.loss = LossSum() / static_cast<double>(input_.loss_token_count);
    result.gradient_norm = std::sqrt(SumOfSquares());
    const bool norm_is_finite = result.gradient_norm <= kLargestNorm;  // false for a NaN
    result.finite = norm_is_finite && std::isfinite(result.loss);
    if (!result.finite) {
      result.non_finite = Locate();
    } else if (input_.max_gradient_norm > 0) {
      result.clip_coefficient =
          std::min(1.0, input_.max_gradient_norm / (result.gradient_norm + kClipEpsilon));
    }
    return result;
  }

 private:
  double LossSum() const {
    double sum = 0;
    for (int m = 0; m < micro_batch_count(); ++m) {
      sum += results_layout_.head(results_, m)->loss_sum;
    }
    return sum;
  }

  double SumOfSquares() const {
    double sum = 0;
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      const double* squares = results_layout_.squares(results_, static_cast<int>(unit));
      sum += std::accumulate(squares, squares + layout_.units[unit].tensors.size(), 0.0);
    }
    return sum;
  }

  NonFinite Locate() const {
    for (int m = 0; m < micro_batch_count(); ++m) {
      const int32_t loss = results_layout_.head(results_, m)->first_nonfinite;
      if (loss >= 0) {
        return LocateLoss(m, loss);
      }
    }
    return LocateGradient();
  }

  // The first unit whose output holds an infinity or NaN, else the head.
  NonFinite LocateLoss(int micro_batch, int loss) const {
    const MicroBatch& batch = input_.micro_batches[micro_batch];
    for (int unit = 0; unit < layout_.head_unit(); ++unit) {
      if (const int32_t row = Mark(unit, micro_batch); row >= 0) {
        return {.unit = unit, .micro_batch = micro_batch, .document = DocumentOf(batch, row)};
      }
    }
    return {.unit = layout_.head_unit(),
            .micro_batch = micro_batch,
            .document = DocumentOf(batch, batch.loss_positions[loss])};
  }

  // The first tensor, in the order of backward, whose gradient is not finite. Attention stays
  // within a document, so what went wrong in a layer is still in its document below it.
  NonFinite LocateGradient() const {
    NonFinite found;
    for (int m = 0; m < micro_batch_count() && found.micro_batch < 0; ++m) {
      if (const int32_t row = Mark(layout_.head_unit(), m); row >= 0) {
        found = {.micro_batch = m, .document = DocumentOf(input_.micro_batches[m], row)};
      }
    }
    for (int unit = layout_.head_unit(); unit >= 0; --unit) {
      const double* squares = results_layout_.squares(results_, unit);
      for (size_t i = 0; i < layout_.units[unit].tensors.size(); ++i) {
        if (!std::isfinite(squares[i])) {
          found.unit = unit;
          found.tensor = layout_.units[unit].tensors[i].name;
          return found;
        }
      }
    }
    return found;
  }

  int32_t Mark(int unit, int micro_batch) const {
    return *results_layout_.mark(results_, unit, micro_batch);
  }

  int micro_batch_count() const { return static_cast<int>(input_.micro_batches.size()); }

  const ModelLayout& layout_;
  const StepInput& input_;
  const ResultsLayout& results_layout_;
  std::byte* const results_;
};

}  // namespace

StepResult JudgeStep(const ModelLayout& layout, const StepInput& input,
                     const ResultsLayout& results_layout, std::byte* results) {
  return Judge(layout, input, results_layout, results).Run();
}

}  // namespace megatrain
