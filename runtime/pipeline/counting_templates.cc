#include "runtime/pipeline/counting_templates.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/status_macros.h"

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

absl::Status CountingTemplates::LayerForward(int unit, const void* weights, const MicroBatch& batch,
                                             const void* input, void* output, Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(unit, workspace));
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    for (int64_t j = 0; j < width(); ++j) {
      const int64_t at = static_cast<int64_t>(t) * width() + j;
      Set(output, at, Get(input, at) * Scale(unit, weights, j));
    }
  }
  return absl::OkStatus();
}

absl::Status CountingTemplates::LayerBackward(int unit, const void* weights,
                                              const MicroBatch& batch, const void* input,
                                              void* hidden_gradient, float* gradients,
                                              Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(unit, workspace));
  const std::vector<TensorLayout>& tensors = layout_.units[unit].tensors;
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    for (int64_t j = 0; j < width(); ++j) {
      const int64_t at = static_cast<int64_t>(t) * width() + j;
      const float output_gradient = Get(hidden_gradient, at);
      for (size_t i = 0; i < tensors.size(); ++i) {
        gradients[tensors[i].offset_elements + ElementOf(i, j, tensors[i].element_count)] +=
            output_gradient * Get(input, at) * Share(i);
      }
      Set(hidden_gradient, at, output_gradient * Scale(unit, weights, j));
    }
  }
  if (unit == broken_layer_) {
    gradients[tensors[0].offset_elements] += std::numeric_limits<float>::infinity();
  }
  return absl::OkStatus();
}

absl::StatusOr<HeadResult> CountingTemplates::Head(const HeadArguments& arguments,
                                                   const MicroBatch& batch, Workspace workspace) {
  MT_ASSIGN_OR_RETURN(const HeadResult result, HeadLoss(arguments.head_weights, arguments.matrix,
                                                        arguments.input, batch, workspace));
  const int64_t count = static_cast<int64_t>(batch.tokens.size()) * width();
  for (int64_t i = 0; i < count; ++i) {
    Set(arguments.hidden_gradient, i, 0.0f);
  }
  for (size_t n = 0; n < batch.loss_positions.size(); ++n) {
    const int64_t position = batch.loss_positions[n];
    const int32_t target = batch.loss_targets[n];
    const float error =
        Score(arguments.head_weights, arguments.matrix, arguments.input, position, target) - 1.0f;
    const float gradient = error * static_cast<float>(arguments.loss_scale);
    for (int64_t j = 0; j < width(); ++j) {
      const float x = Get(arguments.input, position * width() + j);
      const float norm = Get(arguments.head_weights, j);
      const float weight = Get(arguments.matrix, target * width() + j);
      arguments.head_gradients[j] += gradient * x * weight;
      arguments.matrix_gradient[target * width() + j] += gradient * x * norm;
      Set(arguments.hidden_gradient, position * width() + j, gradient * norm * weight);
    }
  }
  return result;
}

absl::StatusOr<HeadResult> CountingTemplates::HeadLoss(const void* head_weights, const void* matrix,
                                                       const void* input, const MicroBatch& batch,
                                                       Workspace workspace) {
  MT_RETURN_IF_ERROR(Begin(layout_.head_unit(), workspace));
  HeadResult result;
  for (size_t n = 0; n < batch.loss_positions.size(); ++n) {
    const double error =
        Score(head_weights, matrix, input, batch.loss_positions[n], batch.loss_targets[n]) - 1.0;
    const double loss = 0.5 * error * error;
    if (!std::isfinite(loss) && result.first_nonfinite < 0) {
      result.first_nonfinite = static_cast<int>(n);
    }
    result.loss_sum += loss;
  }
  return result;
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

float CountingTemplates::Score(const void* norm, const void* matrix, const void* input,
                               int64_t position, int32_t target) const {
  float score = 0.0f;
  for (int64_t j = 0; j < width(); ++j) {
    score += Get(input, position * width() + j) * Get(norm, j) * Get(matrix, target * width() + j);
  }
  return score;
}

}  // namespace megatrain
