#ifndef RUNTIME_PIPELINE_COUNTING_TEMPLATES_H_
#define RUNTIME_PIPELINE_COUNTING_TEMPLATES_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// The pipeline's test double of a model: a few products an element in place of attention and
// MLP, yet with true gradients of a true loss, so that every weight, order and buffer shows in
// the bits. A layer scales each feature by weights of all its tensors; the head draws the target
// token's score towards 1. Takes kWorkspaceBytes of workspace.
class CountingTemplates final : public ModelTemplates {
 public:
  static constexpr int64_t kWorkspaceBytes = 1024;

  CountingTemplates(const ModelLayout& layout, ComputeDtype dtype)
      : layout_(layout), dtype_(dtype) {}

  // Called at the start of every call with its unit; an error is the call's.
  void set_observer(std::function<absl::Status(int unit)> observer) {
    observer_ = std::move(observer);
  }

  // The backward of this layer adds an infinity to the gradient of its first tensor.
  void set_broken_layer(int unit) { broken_layer_ = unit; }

  // Whether forward notes rows of its input that are not finite; it does not by itself.
  void set_marks_inputs(bool marks) { marks_inputs_ = marks; }

  bool marks_inputs() const override { return marks_inputs_; }
  int64_t KeptTokenBytes(KeepLevel level) const override;
  absl::Status EmbedForward(const void* embedding_weights, const MicroBatch& batch, void* hidden,
                            Workspace workspace) override;
  absl::Status EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                             float* embedding_gradients, Workspace workspace) override;
  absl::Status LayerForward(const LayerArguments& arguments, const MicroBatch& batch, void* output,
                            Workspace workspace) override;
  absl::Status LayerBackward(const LayerArguments& arguments, const MicroBatch& batch,
                             void* hidden_gradient, float* gradients, Workspace workspace) override;
  absl::Status Head(const HeadInput& input, const HeadGradients& gradients, const MicroBatch& batch,
                    Workspace workspace) override;
  absl::Status HeadLoss(const HeadInput& input, const MicroBatch& batch,
                        Workspace workspace) override;

 private:
  absl::Status Begin(int unit, Workspace workspace);
  float Get(const void* values, int64_t index) const;
  void Set(void* values, int64_t index, float value) const;
  void MarkInput(const LayerArguments& arguments, int64_t rows) const;
  int64_t width() const { return layout_.units[0].tensors[0].shape[1]; }
  // What a layer scales feature `j` by.
  float Scale(int unit, const void* weights, int64_t j) const;
  float Score(const HeadInput& input, int64_t position, int32_t target) const;

  const ModelLayout layout_;
  const ComputeDtype dtype_;
  std::function<absl::Status(int)> observer_;
  int broken_layer_ = -1;
  bool marks_inputs_ = false;
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_COUNTING_TEMPLATES_H_
