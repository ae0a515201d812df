// For tests and benchmarks: a whole toy model on the templates alone, every unit resident.

#ifndef RUNTIME_MODEL_DIRECT_MODEL_H_
#define RUNTIME_MODEL_DIRECT_MODEL_H_

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// 64-byte aligned memory, zero at first. `shift_lines` moves it by whole cache lines.
class AlignedMemory {
 public:
  explicit AlignedMemory(int64_t size_bytes, int64_t shift_lines = 0);

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::vector<char> memory_;
  void* data_;
  int64_t size_bytes_;
};

// A Llama shape with every field that the templates read; 2 layers, tied.
ModelConfig ToyConfig();

// Documents of random tokens; a loss at every `loss_every`-th token but a document's last.
struct RandomBatch {
  RandomBatch(const std::vector<int64_t>& lengths, int64_t vocab_size, int loss_every,
              std::mt19937& random);
  MicroBatch View() const;

  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> offsets;
  std::vector<int32_t> loss_positions;
  std::vector<int32_t> loss_targets;
};

class DirectModel {
 public:
  // Weights from the seed, the same in both dtypes but for the rounding; `shift_lines` moves every
  // buffer.
  DirectModel(const ModelConfig& config, ComputeDtype dtype, int seed, int64_t shift_lines = 0);

  // Forward and backward; gradients are added to.
  absl::StatusOr<HeadResult> Run(const MicroBatch& batch, double loss_scale, Workspace workspace);

  // Forward alone.
  absl::StatusOr<HeadResult> Evaluate(const MicroBatch& batch, Workspace workspace);

  const ModelLayout& layout() const { return layout_; }
  const float* gradient(int unit) const { return gradients_[unit].floats(); }
  // Of the tied table through the head.
  const float* tied_gradient() const { return tied_gradient_.floats(); }
  ModelTemplates& templates() { return *templates_; }
  const void* weights(int unit) const { return weights_[unit].data(); }
  float* gradient(int unit) { return gradients_[unit].floats(); }

 private:
  absl::Status Forward(const MicroBatch& batch, std::vector<AlignedMemory>* boundaries,
                       Workspace workspace);
  const void* Matrix() const;
  ModelTemplates::LayerArguments Layer(int layer,
                                       const std::vector<AlignedMemory>& boundaries) const;
  ModelTemplates::HeadInput Head(const std::vector<AlignedMemory>& boundaries,
                                 HeadResult& result) const;

  const ModelConfig config_;
  const ModelLayout layout_;
  const ComputeDtype dtype_;
  const int64_t shift_lines_;
  std::unique_ptr<ModelTemplates> templates_;
  std::vector<AlignedMemory> weights_;
  std::vector<AlignedMemory> gradients_;
  AlignedMemory tied_gradient_;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_DIRECT_MODEL_H_
