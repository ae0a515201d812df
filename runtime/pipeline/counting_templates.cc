#include "runtime/pipeline/counting_templates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/status_macros.h"
#include "runtime/pipeline/gradient_math.h"

namespace megatrain {
namespace {

// How much tensor `i` of a layer counts; a power of two, and another one for each.
float Share(size_t i) { return 1.0f / static_cast<float>(int64_t{16} << (i % 4)); }

// Which element of a tensor of `count` meets feature `j`.
int64_t ElementOf(size_t i, int64_t j, int64_t count) {
  return (j * 7 + static_cast<int64_t>(i)) % count;
}

}  // namespace

absl::Status CountingTemplates::EmbedForward(const void* embedding_weights, const MicroBatch& batch,
                                             void* hidden, Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(0, workspace));
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    for (int64_t j = 0; j < width(); ++j) {
      Set(hidden, static_cast<int64_t>(t) * width() + j,
          Get(embedding_weights, batch.tokens[t] * width() + j));
    }
  }
  return absl::OkStatus();
}

absl::Status CountingTemplates::EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                                              float* embedding_gradients, Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(0, workspace));
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    for (int64_t j = 0; j < width(); ++j) {
      embedding_gradients[batch.tokens[t] * width() + j] +=
          Get(hidden_gradient, static_cast<int64_t>(t) * width() + j);
    }
  }
  return absl::OkStatus();
}

// Keeps its whole input when it keeps anything: backward then reads that in the input's place.
int64_t CountingTemplates::KeptTokenBytes(KeepLevel level) const {
  return level == KeepLevel::kNothing ? 0 : width() * SizeBytes(dtype_);
}

absl::Status CountingTemplates::LayerForward(const LayerArguments& arguments,
                                             const MicroBatch& batch, void* output,
                                             Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(arguments.unit, workspace));
  MarkInput(arguments, static_cast<int64_t>(batch.tokens.size()));
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    for (int64_t j = 0; j < width(); ++j) {
      const int64_t at = static_cast<int64_t>(t) * width() + j;
      const float x = Get(arguments.input, at);
      Set(output, at, x * Scale(arguments.unit, arguments.weights, j));
      if (arguments.kept.level != KeepLevel::kNothing) {
        Set(arguments.kept.data, at, x);
      }
    }
  }
  return absl::OkStatus();
}

void CountingTemplates::MarkInput(const LayerArguments& arguments, int64_t rows) const {
  if (arguments.input_mark == nullptr) {
    return;
  }
  if (const int64_t first = FirstNonFinite(arguments.input, dtype_, rows * width()); first >= 0) {
    const auto row = static_cast<uint32_t>(first / width());
    *arguments.input_mark =
        static_cast<int32_t>(std::min(static_cast<uint32_t>(*arguments.input_mark), row));
  }
}

absl::Status CountingTemplates::LayerBackward(const LayerArguments& arguments,
                                              const MicroBatch& batch, void* hidden_gradient,
                                              float* gradients, Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(arguments.unit, workspace));
  const std::vector<TensorLayout>& tensors = layout_.units[arguments.unit].tensors;
  const void* input =
      arguments.kept.level == KeepLevel::kNothing ? arguments.input : arguments.kept.data;
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    for (int64_t j = 0; j < width(); ++j) {
      const int64_t at = static_cast<int64_t>(t) * width() + j;
      const float output_gradient = Get(hidden_gradient, at);
      for (size_t i = 0; i < tensors.size(); ++i) {
        gradients[tensors[i].offset_elements + ElementOf(i, j, tensors[i].element_count)] +=
            output_gradient * Get(input, at) * Share(i);
      }
      Set(hidden_gradient, at, output_gradient * Scale(arguments.unit, arguments.weights, j));
    }
  }
  if (arguments.unit == broken_layer_) {
    gradients[tensors[0].offset_elements] += std::numeric_limits<float>::infinity();
  }
  return absl::OkStatus();
}

absl::Status CountingTemplates::Head(const HeadInput& input, const HeadGradients& gradients,
                                     const MicroBatch& batch, Workspace workspace) {
  MT_RETURN_IF_ERROR(HeadLoss(input, batch, workspace));
  const int64_t count = static_cast<int64_t>(batch.tokens.size()) * width();
  for (int64_t i = 0; i < count; ++i) {
    Set(gradients.hidden, i, 0.0f);
  }
  for (size_t n = 0; n < batch.loss_positions.size(); ++n) {
    const int64_t position = batch.loss_positions[n];
    const int32_t target = batch.loss_targets[n];
    const float error = Score(input, position, target) - 1.0f;
    const float gradient = error * static_cast<float>(gradients.loss_scale);
    for (int64_t j = 0; j < width(); ++j) {
      const float x = Get(input.hidden, position * width() + j);
      const float norm = Get(input.head_weights, j);
      const float weight = Get(input.matrix, target * width() + j);
      gradients.head[j] += gradient * x * weight;
      gradients.matrix[target * width() + j] += gradient * x * norm;
      Set(gradients.hidden, position * width() + j, gradient * norm * weight);
    }
  }
  return absl::OkStatus();
}

absl::Status CountingTemplates::HeadLoss(const HeadInput& input, const MicroBatch& batch,
                                         Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(layout_.head_unit(), workspace));
  HeadResult result;
  for (size_t n = 0; n < batch.loss_positions.size(); ++n) {
    const double error = Score(input, batch.loss_positions[n], batch.loss_targets[n]) - 1.0;
    const double loss = 0.5 * error * error;
    if (!std::isfinite(loss) && result.first_nonfinite < 0) {
      result.first_nonfinite = static_cast<int>(n);
    }
    result.loss_sum += loss;
  }
  *input.result = result;
  return absl::OkStatus();
}

absl::Status CountingTemplates::Begin(int unit, Workspace workspace) {
  if (workspace.size_bytes < kWorkspaceBytes) {
    return absl::InternalError("the workspace is too small");
  }
  std::memset(workspace.data, unit, kWorkspaceBytes);
  return observer_ ? observer_(unit) : absl::OkStatus();
}

float CountingTemplates::Get(const void* values, int64_t index) const {
  if (dtype_ == ComputeDtype::kFloat32) {
    return static_cast<const float*>(values)[index];
  }
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(values)[index]} << 16);
}

void CountingTemplates::Set(void* values, int64_t index, float value) const {
  if (dtype_ == ComputeDtype::kFloat32) {
    static_cast<float*>(values)[index] = value;
  } else {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    static_cast<uint16_t*>(values)[index] = static_cast<uint16_t>(bits >> 16);
  }
}

float CountingTemplates::Scale(int unit, const void* weights, int64_t j) const {
  const std::vector<TensorLayout>& tensors = layout_.units[unit].tensors;
  float scale = 1.0f;
  for (size_t i = 0; i < tensors.size(); ++i) {
    scale += Share(i) *
             Get(weights, tensors[i].offset_elements + ElementOf(i, j, tensors[i].element_count));
  }
  return scale;
}

float CountingTemplates::Score(const HeadInput& input, int64_t position, int32_t target) const {
  float score = 0.0f;
  for (int64_t j = 0; j < width(); ++j) {
    score += Get(input.hidden, position * width() + j) * Get(input.head_weights, j) *
             Get(input.matrix, target * width() + j);
  }
  return score;
}

}  // namespace megatrain
