#include "runtime/model/direct_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/model/model_templates.h"

namespace megatrain {
namespace {

constexpr int64_t kLineBytes = 64;

uint16_t NearestBfloat16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Norms near 1, matrices near 1 / sqrt(columns), biases small.
AlignedMemory RandomWeights(const UnitLayout& unit, ComputeDtype dtype, std::mt19937& random,
                            int64_t shift_lines) {
  AlignedMemory memory(unit.element_count * SizeBytes(dtype), shift_lines);
  std::normal_distribution<float> normal;
  for (const TensorLayout& tensor : unit.tensors) {
    const bool matrix = tensor.shape.size() == 2;
    const float scale = matrix ? 1.0F / std::sqrt(static_cast<float>(tensor.shape[1])) : 0.1F;
    const bool norm = tensor.role == TensorRole::kAttentionNorm ||
                      tensor.role == TensorRole::kMlpNorm || tensor.role == TensorRole::kFinalNorm;
    for (int64_t i = 0; i < tensor.element_count; ++i) {
      const float value = scale * normal(random) + (norm ? 1.0F : 0.0F);
      if (dtype == ComputeDtype::kFloat32) {
        memory.floats()[tensor.offset_elements + i] = value;
      } else {
        static_cast<uint16_t*>(memory.data())[tensor.offset_elements + i] = NearestBfloat16(value);
      }
    }
  }
  return memory;
}

}  // namespace

AlignedMemory::AlignedMemory(int64_t size_bytes, int64_t shift_lines)
    : memory_(size_bytes + (shift_lines + 1) * kLineBytes), size_bytes_(size_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  data_ = reinterpret_cast<void*>((address + kLineBytes - 1) / kLineBytes * kLineBytes +
                                  shift_lines * kLineBytes);
}

ModelConfig ToyConfig() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.model_type = "llama";
  config.vocab_size = 97;
  config.hidden_size = 48;
  config.mlp_width = 80;
  config.layer_count = 2;
  config.head_count = 6;
  config.kv_head_count = 2;
  config.head_dim = 8;
  config.max_positions = 2048;
  config.tied = true;
  config.layer_uses_window.assign(2, false);
  return config;
}

RandomBatch::RandomBatch(const std::vector<int64_t>& lengths, int64_t vocab_size, int loss_every,
                         std::mt19937& random) {
  offsets.push_back(0);
  for (const int64_t length : lengths) {
    const auto start = static_cast<int32_t>(tokens.size());
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<int32_t>(random() % vocab_size));
      positions.push_back(static_cast<int32_t>(i));
    }
    for (int32_t i = 0; i + 1 < length; i += loss_every) {
      loss_positions.push_back(start + i);
      loss_targets.push_back(tokens[start + i + 1]);
    }
    offsets.push_back(static_cast<int32_t>(tokens.size()));
  }
}

MicroBatch RandomBatch::View() const {
  return {.tokens = tokens,
          .positions = positions,
          .document_offsets = offsets,
          .loss_positions = loss_positions,
          .loss_targets = loss_targets};
}

DirectModel::DirectModel(const ModelConfig& config, ComputeDtype dtype, int seed,
                         int64_t shift_lines)
    : config_(config),
      layout_(MakeModelLayout(config)),
      dtype_(dtype),
      shift_lines_(shift_lines),
      tied_gradient_(config.tied ? config.vocab_size * config.hidden_size * 4 : 0, shift_lines) {
  auto templates = MakeModelTemplates(config, layout_, dtype);
  MT_CHECK(templates.ok());
  templates_ = *std::move(templates);
  std::mt19937 random(seed);
  for (const UnitLayout& unit : layout_.units) {
    weights_.push_back(RandomWeights(unit, dtype, random, shift_lines));
    gradients_.emplace_back(unit.element_count * 4, shift_lines);
  }
}

const void* DirectModel::Matrix() const {
  if (layout_.tied) {
    return weights_.front().data();
  }
  const int64_t offset = layout_.units.back().Find(TensorRole::kHead)->offset_elements;
  return static_cast<const char*>(weights_.back().data()) + offset * SizeBytes(dtype_);
}

absl::Status DirectModel::Forward(const MicroBatch& batch, std::vector<AlignedMemory>* boundaries,
                                  Workspace workspace) {
  const int64_t bytes =
      static_cast<int64_t>(batch.tokens.size()) * config_.hidden_size * SizeBytes(dtype_);
  for (int layer = 0; layer <= layout_.layer_count(); ++layer) {
    boundaries->emplace_back(bytes, shift_lines_);
  }
  MT_RETURN_IF_ERROR(templates_->EmbedForward(weights_.front().data(), batch,
                                              boundaries->front().data(), workspace));
  for (int layer = 1; layer <= layout_.layer_count(); ++layer) {
    MT_RETURN_IF_ERROR(templates_->LayerForward(Layer(layer, *boundaries), batch,
                                                (*boundaries)[layer].data(), workspace));
  }
  return absl::OkStatus();
}

absl::StatusOr<HeadResult> DirectModel::Run(const MicroBatch& batch, double loss_scale,
                                            Workspace workspace) {
  std::vector<AlignedMemory> boundaries;
  MT_RETURN_IF_ERROR(Forward(batch, &boundaries, workspace));
  const AlignedMemory hidden_gradient(boundaries.back().size_bytes(), shift_lines_);
  float* matrix_gradient = tied_gradient_.floats();
  if (!layout_.tied) {
    matrix_gradient =
        gradients_.back().floats() + layout_.units.back().Find(TensorRole::kHead)->offset_elements;
  }
  HeadResult result;
  MT_RETURN_IF_ERROR(templates_->Head(Head(boundaries, result),
                                      {.head = gradients_.back().floats(),
                                       .matrix = matrix_gradient,
                                       .hidden = hidden_gradient.data(),
                                       .loss_scale = loss_scale},
                                      batch, workspace));
  for (int layer = layout_.layer_count(); layer >= 1; --layer) {
    MT_RETURN_IF_ERROR(templates_->LayerBackward(
        Layer(layer, boundaries), batch, hidden_gradient.data(), gradient(layer), workspace));
  }
  MT_RETURN_IF_ERROR(
      templates_->EmbedBackward(batch, hidden_gradient.data(), gradient(0), workspace));
  return result;
}

absl::StatusOr<HeadResult> DirectModel::Evaluate(const MicroBatch& batch, Workspace workspace) {
  std::vector<AlignedMemory> boundaries;
  MT_RETURN_IF_ERROR(Forward(batch, &boundaries, workspace));
  HeadResult result;
  MT_RETURN_IF_ERROR(templates_->HeadLoss(Head(boundaries, result), batch, workspace));
  return result;
}

ModelTemplates::LayerArguments DirectModel::Layer(
    int layer, const std::vector<AlignedMemory>& boundaries) const {
  return {.unit = layer, .weights = weights(layer), .input = boundaries[layer - 1].data()};
}

ModelTemplates::HeadInput DirectModel::Head(const std::vector<AlignedMemory>& boundaries,
                                            HeadResult& result) const {
  return {.head_weights = weights_.back().data(),
          .matrix = Matrix(),
          .hidden = boundaries.back().data(),
          .result = &result};
}

}  // namespace megatrain
