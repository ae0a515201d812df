// Measures one decoder layer alone: layer_benchmark [documents [tokens of each [bf16]]].
//
// The shape is SmolLM2-135M's: d 576, 9 heads and 3 key/value heads of 64, MLP 1536.

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/time/time.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/model/direct_model.h"
#include "runtime/model/workspace_size.h"

namespace megatrain {
namespace {

constexpr int kRounds = 20;

ModelConfig LayerConfig() {
  ModelConfig config = ToyConfig();
  config.layer_count = 1;
  config.layer_uses_window.assign(1, false);
  config.hidden_size = 576;
  config.mlp_width = 1536;
  config.head_count = 9;
  config.kv_head_count = 3;
  config.head_dim = 64;
  return config;
}

// Of the layer's matrix products for one pass over one token; attention's own are left out.
double PassFlops(const ModelConfig& config) {
  const double d = static_cast<double>(config.hidden_size);
  const double heads = static_cast<double>(config.head_dim);
  const double projections =
      d * heads * 2.0 * static_cast<double>(config.head_count + config.kv_head_count);
  return 2.0 * (projections + 3.0 * d * static_cast<double>(config.mlp_width));
}

template <typename Call>
double SecondsPerCall(Call call) {
  SystemClock clock;
  MT_CHECK(call().ok());
  const absl::Duration start = clock.MonotonicNow();
  for (int i = 0; i < kRounds; ++i) {
    MT_CHECK(call().ok());
  }
  return absl::ToDoubleSeconds(clock.MonotonicNow() - start) / kRounds;
}

int Main(int argc, char** argv) {
  const int documents = argc > 1 ? std::atoi(argv[1]) : 8;
  const int length = argc > 2 ? std::atoi(argv[2]) : 31;
  const bool bf16 = argc > 3 && std::string(argv[3]) == "bf16";
  const ComputeDtype dtype = bf16 ? ComputeDtype::kBfloat16 : ComputeDtype::kFloat32;
  const ModelConfig config = LayerConfig();
  std::mt19937 random(1);
  const RandomBatch batch(std::vector<int64_t>(documents, length), config.vocab_size, 1, random);
  const int64_t tokens = static_cast<int64_t>(batch.tokens.size());
  const AlignedMemory memory(WorkspaceBytes(config, dtype, tokens, length, tokens));
  const Workspace workspace = {.data = memory.data(), .size_bytes = memory.size_bytes()};
  DirectModel model(config, dtype, 1);
  const AlignedMemory input(tokens * config.hidden_size * SizeBytes(dtype));
  const AlignedMemory output(input.size_bytes());
  MT_CHECK(
      model.templates().EmbedForward(model.weights(0), batch.View(), input.data(), workspace).ok());
  const ModelTemplates::LayerArguments layer = {
      .unit = 1, .weights = model.weights(1), .input = input.data()};
  const double forward = SecondsPerCall([&] {
    return model.templates().LayerForward(layer, batch.View(), output.data(), workspace);
  });
  const double backward = SecondsPerCall([&] {
    return model.templates().LayerBackward(layer, batch.View(), output.data(), model.gradient(1),
                                           workspace);
  });
  const double flops = PassFlops(config) * static_cast<double>(tokens);
  std::printf("forward: %.2f ms, %.0f GFLOP/s\n", forward * 1e3, flops / forward / 1e9);
  std::printf("backward with recompute: %.2f ms, %.0f GFLOP/s\n", backward * 1e3,
              3 * flops / backward / 1e9);
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
