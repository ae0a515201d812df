#include "runtime/pipeline/small_training.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/config/model_config.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/optimizer/update_unit.h"
#include "runtime/pipeline/counting_templates.h"
#include "runtime/pipeline/gradient_math.h"

namespace megatrain {
namespace {

constexpr int kVocabulary = 23;
constexpr int kWidth = 8;

int Draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
}

SmallMicroBatch DrawMicroBatch(std::mt19937& random) {
  SmallMicroBatch batch;
  batch.document_offsets = {0};
  const int documents = Draw(random, 1, 3);
  for (int d = 0; d < documents; ++d) {
    const int length = Draw(random, 1, kSmallMicroBatchTokens / 3);
    for (int i = 0; i < length; ++i) {
      if (i + 1 < length && Draw(random, 0, 2) > 0) {
        batch.loss_positions.push_back(static_cast<int32_t>(batch.tokens.size()));
        batch.loss_targets.push_back(Draw(random, 0, kVocabulary - 1));
      }
      batch.positions.push_back(i);
      batch.tokens.push_back(Draw(random, 0, kVocabulary - 1));
    }
    batch.document_offsets.push_back(static_cast<int32_t>(batch.tokens.size()));
  }
  return batch;
}

// One training with all weights, gradients and boundaries in vectors.
class PlainLoops {
 public:
  PlainLoops(bool tied, ComputeDtype dtype)
      : layout_(SmallLayout(tied)),
        dtype_(dtype),
        templates_(layout_, dtype),
        store_(SmallStore(layout_, dtype)),
        pool_(1) {}

  SmallOutcome Train(const std::vector<SmallStep>& steps) {
    SmallOutcome outcome;
    for (const SmallStep& step : steps) {
      const StepInput input = step.Input();
      LoadWeights();
      double loss = 0;
      for (const MicroBatch& batch : input.micro_batches) {
        loss += ForwardAndBackward(batch, static_cast<double>(input.loss_token_count));
      }
      outcome.losses.push_back(loss / static_cast<double>(input.loss_token_count));
      outcome.gradient_norms.push_back(Update(input));
    }
    outcome.trained_bytes = TrainedBytes(layout_, *store_);
    return outcome;
  }

 private:
  void LoadWeights() {
    weights_.clear();
    gradients_.clear();
    for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) {
      const int64_t count = layout_.units[unit].element_count;
      const auto access = store_->BeginAccess(unit);
      std::vector<float>& weights = weights_.emplace_back(count);
      if (dtype_ == ComputeDtype::kFloat32) {
        JoinFloats(store_->hi(unit), store_->lo(unit), weights);
      } else {
        std::copy_n(store_->hi(unit), count, reinterpret_cast<uint16_t*>(weights.data()));
      }
      gradients_.emplace_back(count, 0.0f);
    }
    tied_gradient_.assign(layout_.units[0].tensors[0].element_count, 0.0f);
  }

  double ForwardAndBackward(const MicroBatch& batch, double loss_tokens) {
    const int head = layout_.head_unit();
    const size_t size = batch.tokens.size() * kWidth;
    std::vector<std::vector<float>> hidden(head, std::vector<float>(size));
    std::vector<float> hidden_gradient(size);
    MT_CHECK(
        templates_.EmbedForward(weights_[0].data(), batch, hidden[0].data(), workspace()).ok());
    const auto layer = [&](int unit) {
      return ModelTemplates::LayerArguments{
          .unit = unit, .weights = weights_[unit].data(), .input = hidden[unit - 1].data()};
    };
    for (int unit = 1; unit < head; ++unit) {
      MT_CHECK(templates_.LayerForward(layer(unit), batch, hidden[unit].data(), workspace()).ok());
    }
    HeadResult result;
    const ModelTemplates::HeadInput input = {
        .head_weights = weights_[head].data(),
        .matrix = layout_.tied ? weights_[0].data() : HeadMatrix(weights_[head], dtype_),
        .hidden = hidden[head - 1].data(),
        .result = &result};
    const ModelTemplates::HeadGradients gradients = {
        .head = gradients_[head].data(),
        .matrix = layout_.tied ? tied_gradient_.data()
                               : HeadMatrix(gradients_[head], ComputeDtype::kFloat32),
        .hidden = hidden_gradient.data(),
        .loss_scale = 1.0 / loss_tokens};
    MT_CHECK(templates_.Head(input, gradients, batch, workspace()).ok());
    for (int unit = head - 1; unit > 0; --unit) {
      MT_CHECK(templates_
                   .LayerBackward(layer(unit), batch, hidden_gradient.data(),
                                  gradients_[unit].data(), workspace())
                   .ok());
    }
    MT_CHECK(
        templates_.EmbedBackward(batch, hidden_gradient.data(), gradients_[0].data(), workspace())
            .ok());
    return result.loss_sum;
  }

  double Update(const StepInput& input) {
    if (layout_.tied) {
      for (size_t i = 0; i < tied_gradient_.size(); ++i) {
        gradients_[0][i] += tied_gradient_[i];
      }
    }
    double squares = 0;
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      double unit_squares = 0;
      for (const TensorLayout& tensor : layout_.units[unit].tensors) {
        unit_squares += SumOfSquares(
            std::span(gradients_[unit]).subspan(tensor.offset_elements, tensor.element_count));
      }
      squares += unit_squares;
    }
    const double norm = std::sqrt(squares);
    AdamWStep step = input.optimizer;
    step.step = ++update_count_;
    step.gradient_scale = std::min(1.0, input.max_gradient_norm / (norm + 1e-6));
    for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit) {
      StoreGradient(unit);
      UpdateUnit(layout_, unit, step, *store_, pool_);
    }
    return norm;
  }

  void StoreGradient(int unit) {
    const auto access = store_->BeginAccess(unit);
    if (store_->gradient_bytes() == 2) {
      RoundToBfloat16InPlace(gradients_[unit]);
    }
    std::copy_n(reinterpret_cast<const char*>(gradients_[unit].data()),
                layout_.units[unit].element_count * store_->gradient_bytes(),
                static_cast<char*>(store_->gradient(unit)));
  }

  float* HeadMatrix(std::vector<float>& unit, ComputeDtype dtype) const {
    char* first = reinterpret_cast<char*>(unit.data());
    const int64_t offset = layout_.units.back().Find(TensorRole::kHead)->offset_elements;
    return reinterpret_cast<float*>(first + offset * SizeBytes(dtype));
  }

  Workspace workspace() {
    return {.data = workspace_.data(), .size_bytes = static_cast<int64_t>(workspace_.size())};
  }

  const ModelLayout layout_;
  const ComputeDtype dtype_;
  CountingTemplates templates_;
  std::unique_ptr<HostStore> store_;
  OptimizerPool pool_;
  std::vector<std::vector<float>> weights_;    // by unit; bf16 in the first half when so computed
  std::vector<std::vector<float>> gradients_;  // by unit
  std::vector<float> tied_gradient_;
  std::vector<char> workspace_ = std::vector<char>(CountingTemplates::kWorkspaceBytes);
  int64_t update_count_ = 0;
};

}  // namespace

ModelLayout SmallLayout(bool tied) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.vocab_size = kVocabulary;
  config.hidden_size = kWidth;
  config.mlp_width = 12;
  config.layer_count = 4;
  config.head_count = 2;
  config.kv_head_count = 1;
  config.head_dim = 4;
  config.max_positions = 128;
  config.tied = tied;
  config.layer_uses_window.assign(config.layer_count, false);
  return MakeModelLayout(config);
}

MicroBatch SmallMicroBatch::View() const {
  return {.tokens = tokens,
          .positions = positions,
          .document_offsets = document_offsets,
          .loss_positions = loss_positions,
          .loss_targets = loss_targets};
}

StepInput SmallStep::Input() const {
  StepInput input = {.optimizer = {.learning_rate = 0.01, .beta2 = 0.99, .weight_decay = 0.1},
                     .max_gradient_norm = max_gradient_norm};
  for (const SmallMicroBatch& batch : micro_batches) {
    input.micro_batches.push_back(batch.View());
    input.loss_token_count += static_cast<int64_t>(batch.loss_positions.size());
  }
  return input;
}

std::vector<SmallStep> SmallSteps(uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<SmallStep> steps(count);
  for (SmallStep& step : steps) {
    const int micro_batches = Draw(random, 1, kSmallMicroBatches);
    do {
      step.micro_batches.clear();
      for (int m = 0; m < micro_batches; ++m) {
        step.micro_batches.push_back(DrawMicroBatch(random));
      }
    } while (step.Input().loss_token_count == 0);
  }
  return steps;
}

std::unique_ptr<HostStore> SmallStore(const ModelLayout& layout, ComputeDtype dtype,
                                      std::vector<bool> gradients) {
  auto store = HostStore::Create(layout, {.gradient_bytes = static_cast<int>(SizeBytes(dtype)),
                                          .gradients = std::move(gradients),
                                          .protect_idle_units = true});
  MT_CHECK(store.ok());
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.5f);
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const auto access = (*store)->BeginAccess(unit);
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      for (int64_t i = 0; i < tensor.element_count; ++i) {
        const SplitFloat weight = Split(normal(random));
        (*store)->hi(unit)[tensor.offset_elements + i] = weight.hi;
        (*store)->lo(unit)[tensor.offset_elements + i] = weight.lo;
      }
    }
  }
  return *std::move(store);
}

std::string TrainedBytes(const ModelLayout& layout, HostStore& store) {
  std::string bytes;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    const auto access = store.BeginAccess(unit);
    const int64_t count = layout.units[unit].element_count;
    bytes.append(reinterpret_cast<const char*>(store.hi(unit)), count * sizeof(uint16_t));
    bytes.append(reinterpret_cast<const char*>(store.lo(unit)), count * sizeof(int16_t));
    bytes.append(reinterpret_cast<const char*>(store.moment1(unit)), count * sizeof(float));
    bytes.append(reinterpret_cast<const char*>(store.moment2(unit)), count * sizeof(float));
  }
  return bytes;
}

SmallOutcome TrainInPlainLoops(bool tied, ComputeDtype dtype, const std::vector<SmallStep>& steps) {
  return PlainLoops(tied, dtype).Train(steps);
}

}  // namespace megatrain
