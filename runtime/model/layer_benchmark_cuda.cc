// Measures one Qwen2.5-7B decoder layer and the head on a GPU, bf16, documents of 1,024 tokens:
// layer_benchmark_cuda [deterministic].

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/cuda_templates.h"
#include "runtime/model/layer_template.h"

namespace megatrain {
namespace {

constexpr int kWarmUps = 3;
constexpr int kRounds = 20;
constexpr int64_t kDocumentTokens = 1024;
constexpr int kLayerUnit = 1;
constexpr float kHiddenScale = 1.0F;
constexpr float kWeightScale = 0.02F;
constexpr float kGradientScale = 1e-3F;

void Check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::abort();
  }
}

void Check(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
}

ModelConfig OneLayer() {
  return Resized(ShapeByName("qwen2.5-7b").value(), /*layers=*/1, /*width=*/1).value();
}

class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t size_bytes) {
    Check(cudaMalloc(&data_, size_bytes));
    Check(cudaMemset(data_, 0, size_bytes));
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* get() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }

  // Normal bf16 numbers; a block of them again and again.
  void FillNormal(int64_t count, float scale) {
    constexpr int64_t kBlock = 1 << 22;
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, scale);
    std::vector<uint16_t> block(std::min(count, kBlock));
    for (uint16_t& value : block) {
      const float number = normal(random);
      uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      value = static_cast<uint16_t>(bits >> 16);
    }
    for (int64_t first = 0; first < count; first += kBlock) {
      Check(cudaMemcpy(static_cast<uint16_t*>(data_) + first, block.data(),
                       std::min(kBlock, count - first) * 2, cudaMemcpyHostToDevice));
    }
  }

 private:
  void* data_ = nullptr;
};

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

// Milliseconds a call of GPU time, launches overlapping.
double Milliseconds(cudaStream_t stream, const std::function<absl::Status()>& call) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  for (int i = 0; i < kWarmUps + kRounds; ++i) {
    if (i == kWarmUps) {
      Check(cudaEventRecord(begin, stream));
    }
    Check(call());
  }
  Check(cudaEventRecord(end, stream));
  Check(cudaEventSynchronize(end));
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end));
  Check(cudaEventDestroy(begin));
  Check(cudaEventDestroy(end));
  return milliseconds / kRounds;
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
        workspace_(workspace_bytes_),
        hidden_(HiddenElements() * 2),
        output_(HiddenElements() * 2) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    auto templates = MakeCudaTemplates(config_, layout_, ComputeDtype::kBfloat16, mode,
                                       {.tokens = token_count,
                                        .document_tokens = kDocumentTokens,
                                        .documents = token_count / kDocumentTokens});
    Check(templates.status());
    templates_ = *std::move(templates);
    tables_ = std::make_unique<DeviceMemory>(templates_->BatchTableBytes());
    Check(templates_->Prepare(View()));
    Check(templates_->BindBatch(View(), tables_->get(), Whole()));
    hidden_.FillNormal(HiddenElements(), kHiddenScale);
  }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void RunLayer(KeepLevel level, const char* name) {
    const int64_t elements = layout_.units[kLayerUnit].element_count;
    DeviceMemory weights(elements * 2);
    weights.FillNormal(elements, kWeightScale);
    const DeviceMemory gradients(elements * 4);
    const DeviceMemory kept(templates_->KeptTokenBytes(level) * tokens_ + 1);
    const ModelTemplates::LayerArguments layer = {.unit = kLayerUnit,
                                                  .weights = weights.get(),
                                                  .input = hidden_.get(),
                                                  .kept = {.level = level, .data = kept.get()}};
    const auto forward = [&] {
      return templates_->LayerForward(layer, View(), output_.get(), Whole());
    };
    const double forward_ms = Milliseconds(stream_, forward);
    DeviceMemory gradient(HiddenElements() * 2);
    gradient.FillNormal(HiddenElements(), kGradientScale);
    // Backward overwrites what is kept, so both directions run in turn.
    const double both_ms = Milliseconds(stream_, [&] {
      const absl::Status status = forward();
      return status.ok() ? templates_->LayerBackward(layer, View(), gradient.get(),
                                                     gradients.floats(), Whole())
                         : status;
    });
    std::printf("layer, %" PRId64
                " tokens, keeps %s: forward %.3f ms, backward %.3f ms, %.0f model"
                " TFLOP/s\n",
                tokens_, name, forward_ms, both_ms - forward_ms, LayerFlops() / both_ms / 1e9);
  }

  void RunHead() {
    const UnitLayout& unit = layout_.units.back();
    const int64_t matrix = unit.Find(TensorRole::kHead)->offset_elements;
    DeviceMemory weights(unit.element_count * 2);
    weights.FillNormal(unit.element_count, kWeightScale);
    const DeviceMemory gradients(unit.element_count * 4);
    const DeviceMemory result(sizeof(HeadResult));
    const double milliseconds = Milliseconds(stream_, [&] {
      return templates_->Head({.head_weights = weights.get(),
                               .matrix = static_cast<uint16_t*>(weights.get()) + matrix,
                               .hidden = hidden_.get(),
                               .result = static_cast<HeadResult*>(result.get())},
                              {.head = gradients.floats(),
                               .matrix = gradients.floats() + matrix,
                               .hidden = output_.get(),
                               .loss_scale = 1.0 / static_cast<double>(tokens_)},
                              View(), Whole());
    });
    const double flops = 6.0 * static_cast<double>(config_.vocab_size * config_.hidden_size) *
                         static_cast<double>(batch_.loss_positions.size());
    std::printf("head, %zu rows: %.3f ms, %.0f model TFLOP/s\n", batch_.loss_positions.size(),
                milliseconds, flops / milliseconds / 1e9);
  }

 private:
  int64_t HiddenElements() const { return tokens_ * config_.hidden_size; }
  MicroBatch View() const { return batch_.View(tables_->get()); }
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
  DeviceMemory workspace_;
  DeviceMemory hidden_;
  DeviceMemory output_;
  std::unique_ptr<DeviceMemory> tables_;
  std::unique_ptr<ModelTemplates> templates_;
  cudaStream_t stream_ = nullptr;
};

int Main(int argc, char** argv) {
  const bool deterministic = argc > 1 && std::string(argv[1]) == "deterministic";
  const AttentionMode mode = deterministic ? AttentionMode::kDeterministic : AttentionMode::kFast;
  for (const int64_t tokens : {8192, 16384}) {
    Bench bench(tokens, mode);
    bench.RunLayer(KeepLevel::kAll, "all");
    bench.RunLayer(KeepLevel::kProjections, "projections");
    bench.RunLayer(KeepLevel::kNothing, "nothing");
  }
  Bench(8192, mode).RunHead();
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
