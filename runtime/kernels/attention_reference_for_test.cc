#include "runtime/kernels/attention_reference_for_test.h"

#include <algorithm>
#include <cmath>

namespace megatrain {
namespace {

template <typename A, typename B>
double Dot(const A* a, const B* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += double{a[i]} * double{b[i]};
  }
  return sum;
}

void AddScaled(double factor, const float* from, int count, double* to) {
  for (int i = 0; i < count; ++i) {
    to[i] += factor * double{from[i]};
  }
}

// One query of one head: rows of keys and values from `begin` to the query itself.
class Query {
 public:
  Query(const AttentionShape& shape, const AttentionInputs& inputs, AttentionResults& results,
        int head, int64_t begin, int64_t row)
      : shape_(shape), inputs_(inputs), results_(results), head_(head), begin_(begin), row_(row) {}

  void Run() {
    Softmax();
    double* out = &results_.out[row_ * shape_.OutWidth() + QueryColumn()];
    for (int64_t key = begin_; key <= row_; ++key) {
      AddScaled(weights_[key - begin_], At(key, ValueColumn()), shape_.head_dim, out);
    }
    Backward(out);
  }

 private:
  int64_t QueryColumn() const { return int64_t{head_} * shape_.head_dim; }
  int64_t KeyColumn() const {
    const int kv_head = head_ / (shape_.heads / shape_.kv_heads);
    return shape_.OutWidth() + int64_t{kv_head} * shape_.head_dim;
  }
  int64_t ValueColumn() const { return KeyColumn() + shape_.KeyWidth(); }
  double Scale() const { return 1 / std::sqrt(double(shape_.head_dim)); }
  const float* At(int64_t row, int64_t column) const {
    return &inputs_.qkv[row * shape_.QkvWidth() + column];
  }
  double* GradientAt(int64_t row, int64_t column) const {
    return &results_.qkv_gradient[row * shape_.QkvWidth() + column];
  }

  void Softmax() {
    for (int64_t key = begin_; key <= row_; ++key) {
      weights_.push_back(Scale() *
                         Dot(At(row_, QueryColumn()), At(key, KeyColumn()), shape_.head_dim));
    }
    double peak = *std::max_element(weights_.begin(), weights_.end());
    double sum = 0;
    if (shape_.sinks) {
      peak = std::max(peak, double{inputs_.sinks[head_]});
      sum = std::exp(inputs_.sinks[head_] - peak);
    }
    for (const double score : weights_) {
      sum += std::exp(score - peak);
    }
    log_sum_exp_ = peak + std::log(sum);
    results_.log_sum_exp[row_ * shape_.heads + head_] = log_sum_exp_;
    for (double& weight : weights_) {
      weight = std::exp(weight - log_sum_exp_);
    }
  }

  void Backward(const double* out) const {
    const float* gradient = &inputs_.out_gradient[row_ * shape_.OutWidth() + QueryColumn()];
    const int width = shape_.head_dim;
    const double row_dot = Dot(out, gradient, width);
    for (int64_t key = begin_; key <= row_; ++key) {
      const double weight = weights_[key - begin_];
      const double score_gradient =
          Scale() * weight * (Dot(gradient, At(key, ValueColumn()), width) - row_dot);
      AddScaled(score_gradient, At(key, KeyColumn()), width, GradientAt(row_, QueryColumn()));
      AddScaled(score_gradient, At(row_, QueryColumn()), width, GradientAt(key, KeyColumn()));
      AddScaled(weight, gradient, width, GradientAt(key, ValueColumn()));
    }
    if (shape_.sinks) {
      results_.sink_gradient[head_] -= std::exp(inputs_.sinks[head_] - log_sum_exp_) * row_dot;
    }
  }

  const AttentionShape& shape_;
  const AttentionInputs& inputs_;
  AttentionResults& results_;
  const int head_;
  const int64_t begin_;
  const int64_t row_;
  std::vector<double> weights_;
  double log_sum_exp_ = 0;
};

}  // namespace

AttentionResults ReferenceAttention(const AttentionShape& shape, const AttentionInputs& inputs) {
  const int64_t tokens = inputs.document_offsets.back();
  AttentionResults results;
  results.out.resize(tokens * shape.OutWidth());
  results.log_sum_exp.resize(tokens * shape.heads);
  results.qkv_gradient.resize(tokens * shape.QkvWidth());
  results.sink_gradient.resize(shape.heads);
  for (size_t document = 0; document + 1 < inputs.document_offsets.size(); ++document) {
    const int64_t first = inputs.document_offsets[document];
    for (int64_t row = first; row < inputs.document_offsets[document + 1]; ++row) {
      const int64_t begin = shape.window == 0 ? first : std::max(first, row - shape.window + 1);
      for (int head = 0; head < shape.heads; ++head) {
        Query(shape, inputs, results, head, begin, row).Run();
      }
    }
  }
  return results;
}

}  // namespace megatrain
