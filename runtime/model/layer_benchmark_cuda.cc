// Measures one Qwen2.5-7B decoder layer and the head on a GPU, bf16, documents of 1,024 tokens:
// layer_benchmark_cuda [deterministic].

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/benchmarks/measurement.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/cuda_templates.h"
#include "runtime/model/layer_template.h"

namespace megatrain {
namespace {

constexpr int64_t kDocumentTokens = 1024;
constexpr int kLayerUnit = 1;
constexpr float kHiddenScale = 1.0F;
constexpr float kWeightScale = 0.02F;
constexpr float kGradientScale = 1e-3F;

ModelConfig OneLayer() {
  return Resized(ShapeByName("qwen2.5-7b").value(), /*layers=*/1, /*width=*/1).value();
}

// Whole documents of random tokens, a loss at every token but the last of each.
struct Batch {
  explicit Batch(int64_t token_count, int64_t vocab_size) : offsets({0}) {
    std::mt19937 random(2);
    for (int64_t i = 0; i < token_count; ++i) {
      tokens.push_back(static_cast<int32_t>(random() % vocab_size));
      positions.push_back(static_cast<int32_t>(i % kDocumentTokens));
      if (i % kDocumentTokens == kDocumentTokens - 1) {
        offsets.push_back(static_cast<int32_t>(i + 1));
      } else {
        loss_positions.push_back(static_cast<int32_t>(i));
        loss_targets.push_back(static_cast<int32_t>(random() % vocab_size));
      }
    }
  }
  MicroBatch View(const void* device_tables) const {
    return {.tokens = tokens,
            .positions = positions,
            .document_offsets = offsets,
            .loss_positions = loss_positions,
            .loss_targets = loss_targets,
            .device_tables = device_tables};
  }

  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> offsets;
  std::vector<int32_t> loss_positions;
  std::vector<int32_t> loss_targets;
};

DeviceArray<float> ZeroFloats(int64_t count) {
  auto floats = AllocateArray<float>(count);
  Check(cudaMemset(floats.get(), 0, count * sizeof(float)), "cudaMemset");
  return floats;
}

// The templates and everything a call on `token_count` tokens takes.
class Bench {
 public:
  Bench(int64_t token_count, AttentionMode mode)
      : config_(OneLayer()),
        layout_(MakeModelLayout(config_)),
        shape_(MakeCudaShape(config_, ComputeDtype::kBfloat16, mode, token_count)),
        batch_(token_count, config_.vocab_size),
        tokens_(token_count),
        workspace_bytes_(CudaWorkspaceBytes(shape_, token_count)),
        workspace_(AllocateArray<char>(workspace_bytes_)),
        hidden_(NormalNumbers(HiddenElements(), kHiddenScale)),
        output_(AllocateArray<__nv_bfloat16>(HiddenElements())) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    auto templates = MakeCudaTemplates(config_, layout_, ComputeDtype::kBfloat16, mode,
                                       {.tokens = token_count,
                                        .document_tokens = kDocumentTokens,
                                        .documents = token_count / kDocumentTokens});
    Check(templates.status());
    templates_ = *std::move(templates);
    tables_ = AllocateArray<char>(templates_->BatchTableBytes());
    Check(templates_->Prepare(View()));
    Check(templates_->BindBatch(View(), tables_.get(), Whole()));
  }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void RunLayer(KeepLevel level, const char* name) {
    const int64_t elements = layout_.units[kLayerUnit].element_count;
    const auto weights = NormalNumbers(elements, kWeightScale);
    const auto gradients = ZeroFloats(elements);
    const auto kept = AllocateArray<char>(templates_->KeptTokenBytes(level) * tokens_ + 1);
    const ModelTemplates::LayerArguments layer = {.unit = kLayerUnit,
                                                  .weights = weights.get(),
                                                  .input = hidden_.get(),
                                                  .kept = {.level = level, .data = kept.get()}};
    const auto forward = [&] {
      return templates_->LayerForward(layer, View(), output_.get(), Whole());
    };
    const double forward_ms = 1e3 * MedianSeconds(forward, stream_);
    const auto gradient = NormalNumbers(HiddenElements(), kGradientScale);
    // Backward overwrites what is kept, so both directions run in turn.
    const auto both = [&] {
      const absl::Status status = forward();
      return status.ok() ? templates_->LayerBackward(layer, View(), gradient.get(), gradients.get(),
                                                     Whole())
                         : status;
    };
    const double both_ms = 1e3 * MedianSeconds(both, stream_);
    std::printf("layer, %" PRId64
                " tokens, keeps %s: forward %.3f ms, backward %.3f ms, %.0f model"
                " TFLOP/s\n",
                tokens_, name, forward_ms, both_ms - forward_ms, LayerFlops() / both_ms / 1e9);
  }

  void RunHead() {
    const UnitLayout& unit = layout_.units.back();
    const int64_t matrix = unit.Find(TensorRole::kHead)->offset_elements;
    const auto weights = NormalNumbers(unit.element_count, kWeightScale);
    const auto gradients = ZeroFloats(unit.element_count);
    const auto result = AllocateArray<HeadResult>(1);
    const auto head = [&] {
      return templates_->Head({.head_weights = weights.get(),
                               .matrix = weights.get() + matrix,
                               .hidden = hidden_.get(),
                               .result = result.get()},
                              {.head = gradients.get(),
                               .matrix = gradients.get() + matrix,
                               .hidden = output_.get(),
                               .loss_scale = 1.0 / static_cast<double>(tokens_)},
                              View(), Whole());
    };
    const double milliseconds = 1e3 * MedianSeconds(head, stream_);
    const double flops = 6.0 * static_cast<double>(config_.vocab_size * config_.hidden_size) *
                         static_cast<double>(batch_.loss_positions.size());
    std::printf("head, %zu rows: %.3f ms, %.0f model TFLOP/s\n", batch_.loss_positions.size(),
                milliseconds, flops / milliseconds / 1e9);
  }

 private:
  int64_t HiddenElements() const { return tokens_ * config_.hidden_size; }
  MicroBatch View() const { return batch_.View(tables_.get()); }
  Workspace Whole() const {
    return {.data = workspace_.get(), .size_bytes = workspace_bytes_, .stream = stream_};
  }

  // Forward and backward without recompute: 6 a matrix element and token, and causal attention.
  double LayerFlops() const {
    const AttentionShape& attention = shape_.attention;
    const int64_t matrices =
        shape_.hidden_size * (attention.QkvWidth() + attention.OutWidth() + 3 * shape_.mlp_width);
    const int64_t scores = kDocumentTokens * attention.OutWidth();
    return 6.0 * static_cast<double>(matrices + scores) * static_cast<double>(tokens_);
  }

  const ModelConfig config_;
  const ModelLayout layout_;
  const CudaShape shape_;
  const Batch batch_;
  const int64_t tokens_;
  const int64_t workspace_bytes_;
  const DeviceArray<char> workspace_;
  const DeviceArray<__nv_bfloat16> hidden_;
  const DeviceArray<__nv_bfloat16> output_;
  DeviceArray<char> tables_;
  std::unique_ptr<ModelTemplates> templates_;
  cudaStream_t stream_ = nullptr;
};

int Main(int argc, char** argv) {
  const bool deterministic = argc > 1 && std::string(argv[1]) == "deterministic";
  const AttentionMode mode = deterministic ? AttentionMode::kDeterministic : AttentionMode::kFast;
  for (const int64_t tokens : {8192, 16384}) {
    Bench bench(tokens, mode);
    bench.RunLayer(KeepLevel::kAll, "all");
    bench.RunLayer(KeepLevel::kProducts, "products");
    bench.RunLayer(KeepLevel::kProjections, "projections");
    bench.RunLayer(KeepLevel::kNothing, "nothing");
  }
  Bench(8192, mode).RunHead();
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
