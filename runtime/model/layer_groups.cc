#include "runtime/model/layer_groups.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/round_up.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kAlignmentBytes = 256;

int64_t AlignedBoundaryBytes(int64_t tokens, int64_t token_bytes) {
  return RoundUp(tokens * token_bytes, kAlignmentBytes);
}

class GroupTemplates final : public ModelTemplates {
 public:
  GroupTemplates(std::unique_ptr<ModelTemplates> layers, const ModelLayout& layout, int size,
                 ComputeDtype dtype)
      : layers_(std::move(layers)),
        size_(size),
        weight_bytes_(SizeBytes(dtype)),
        token_bytes_(layout.units[0].Find(TensorRole::kTokenTable)->shape[1] * weight_bytes_) {
    for (const UnitLayout& unit : layout.units) {
      elements_.push_back(unit.element_count);
    }
  }

  absl::Status Prepare(const MicroBatch& batch) override { return layers_->Prepare(batch); }
  int64_t BatchTableBytes() const override { return layers_->BatchTableBytes(); }
  absl::Status BindBatch(const MicroBatch& batch, void* tables, Workspace workspace) override {
    return layers_->BindBatch(batch, tables, workspace);
  }
  bool writes_first_gradients() const override { return layers_->writes_first_gradients(); }
  bool marks_inputs() const override { return layers_->marks_inputs(); }

  absl::Status EmbedForward(const void* embedding_weights, const MicroBatch& batch, void* hidden,
                            Workspace workspace) override {
    return layers_->EmbedForward(embedding_weights, batch, hidden, workspace);
  }
  absl::Status EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                             float* embedding_gradients, Workspace workspace) override {
    return layers_->EmbedBackward(batch, hidden_gradient, embedding_gradients, workspace);
  }

  absl::Status LayerForward(const LayerArguments& arguments, const MicroBatch& batch, void* output,
                            Workspace workspace) override {
    Boundaries boundaries;
    MT_RETURN_IF_ERROR(Take(batch, workspace, boundaries));
    MT_RETURN_IF_ERROR(WithinGroup(arguments, batch, boundaries, workspace));
    return layers_->LayerForward(Layer(arguments, boundaries, size_ - 1), batch, output, workspace);
  }

  absl::Status LayerBackward(const LayerArguments& arguments, const MicroBatch& batch,
                             void* hidden_gradient, float* gradients,
                             Workspace workspace) override {
    Boundaries boundaries;
    MT_RETURN_IF_ERROR(Take(batch, workspace, boundaries));
    MT_RETURN_IF_ERROR(WithinGroup(arguments, batch, boundaries, workspace));
    for (int layer = size_ - 1; layer >= 0; --layer) {
      MT_RETURN_IF_ERROR(
          layers_->LayerBackward(Layer(arguments, boundaries, layer), batch, hidden_gradient,
                                 gradients + FirstElement(arguments.unit, layer), workspace));
    }
    return absl::OkStatus();
  }

  absl::Status Head(const HeadInput& input, const HeadGradients& gradients, const MicroBatch& batch,
                    Workspace workspace) override {
    return layers_->Head(input, gradients, batch, workspace);
  }
  absl::Status HeadLoss(const HeadInput& input, const MicroBatch& batch,
                        Workspace workspace) override {
    return layers_->HeadLoss(input, batch, workspace);
  }

 private:
  using Boundaries = std::vector<std::byte*>;  // the outputs of all layers but the last

  // Takes them from the front of the workspace.
  absl::Status Take(const MicroBatch& batch, Workspace& workspace, Boundaries& boundaries) const {
    const int64_t each =
        AlignedBoundaryBytes(static_cast<int64_t>(batch.tokens.size()), token_bytes_);
    const int64_t taken = (size_ - 1) * each;
    if (taken > workspace.size_bytes) {
      return absl::InternalError(absl::StrCat("a group of ", size_, " layers needs ", taken,
                                              " bytes of workspace for its boundaries, of ",
                                              workspace.size_bytes));
    }
    auto* data = static_cast<std::byte*>(workspace.data);
    for (int layer = 0; layer + 1 < size_; ++layer) {
      boundaries.push_back(data + layer * each);
    }
    workspace.data = data + taken;
    workspace.size_bytes -= taken;
    return absl::OkStatus();
  }

  absl::Status WithinGroup(const LayerArguments& arguments, const MicroBatch& batch,
                           const Boundaries& boundaries, Workspace workspace) {
    for (int layer = 0; layer + 1 < size_; ++layer) {
      MT_RETURN_IF_ERROR(layers_->LayerForward(Layer(arguments, boundaries, layer), batch,
                                               boundaries[layer], workspace));
    }
    return absl::OkStatus();
  }

  // A group's layer as `layers_` knows it.
  LayerArguments Layer(const LayerArguments& group, const Boundaries& boundaries, int layer) const {
    return {.unit = FirstUnit(group.unit) + layer,
            .weights = static_cast<const std::byte*>(group.weights) +
                       FirstElement(group.unit, layer) * weight_bytes_,
            .input = layer == 0 ? group.input : boundaries[layer - 1],
            .overwrites_gradients = group.overwrites_gradients,
            .input_mark = layer == 0 ? group.input_mark : nullptr};
  }

  int FirstUnit(int group_unit) const { return 1 + (group_unit - 1) * size_; }

  // Where the layer begins in its group.
  int64_t FirstElement(int group_unit, int layer) const {
    int64_t first = 0;
    for (int i = 0; i < layer; ++i) {
      first += elements_[FirstUnit(group_unit) + i];
    }
    return first;
  }

  const std::unique_ptr<ModelTemplates> layers_;
  const int size_;
  const int64_t weight_bytes_;
  const int64_t token_bytes_;
  std::vector<int64_t> elements_;  // by unit of the layers
};

}  // namespace

ModelLayout GroupLayers(const ModelLayout& layout, int size) {
  MT_CHECK(size >= 1 && layout.layer_count() % size == 0);
  ModelLayout grouped = {.units = {layout.units.front()}, .tied = layout.tied};
  for (int first = 1; first < layout.head_unit(); first += size) {
    UnitLayout group = {.kind = UnitKind::kDecoderLayer,
                        .layer_index = (first - 1) / size,
                        .tensors = {},
                        .element_count = 0};
    for (int unit = first; unit < first + size; ++unit) {
      for (TensorLayout tensor : layout.units[unit].tensors) {
        tensor.offset_elements += group.element_count;
        group.tensors.push_back(std::move(tensor));
      }
      group.element_count += layout.units[unit].element_count;
    }
    grouped.units.push_back(std::move(group));
  }
  grouped.units.push_back(layout.units.back());
  return grouped;
}

int64_t GroupWorkspaceBytes(int size, int64_t tokens, int64_t boundary_token_bytes) {
  return (size - 1) * AlignedBoundaryBytes(tokens, boundary_token_bytes);
}

std::unique_ptr<ModelTemplates> MakeGroupTemplates(std::unique_ptr<ModelTemplates> layers,
                                                   const ModelLayout& layout, int size,
                                                   ComputeDtype dtype) {
  return std::make_unique<GroupTemplates>(std::move(layers), layout, size, dtype);
}

}  // namespace megatrain
