#include "runtime/planner/step_prediction.h"

#include <algorithm>
#include <vector>

#include "runtime/planner/model_flops.h"

namespace megatrain {
namespace {

// A product of so many rows runs at half of its speed: what tiles and launches cost.
constexpr double kHalfSpeedTokens = 200;

// AdamW on the device reads and writes hi, lo and both moments and reads a fp32 gradient; reading
// it once more for the norm and clearing it are counted too.
constexpr double kDeviceUpdateBytes = 36;

struct Elements {
  double all = 0;
  double on_host = 0;  // whose state the host updates
};

Elements CountElements(const ModelLayout& layout, const PipelineOptions& options) {
  Elements elements;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    const double count = static_cast<double>(layout.units[unit].element_count);
    elements.all += count;
    if (options.update_of(static_cast<int>(unit)) != UpdatePlacement::kDevice) {
      elements.on_host += count;
    }
  }
  return elements;
}

// Bytes that norms, rotation, activation functions and residual additions of one layer move for a
// token, forward and backward; gradients of a bf16 step's matrices are not among them.
double ElementWiseBytes(const ModelConfig& config, ComputeDtype dtype) {
  const int64_t qkv = (config.head_count + 2 * config.kv_head_count) * config.head_dim;
  const int64_t elements = 16 * config.hidden_size + 9 * config.mlp_width + 6 * qkv;
  return static_cast<double>(elements * SizeBytes(dtype));
}

// Kernels of a step, one after another.
double ComputeSeconds(const ModelConfig& config, const StepRows& step,
                      const PipelineOptions& options, const MachineSpeeds& speeds) {
  const std::vector<int64_t> documents(step.rows, step.row_tokens);
  const double tokens = static_cast<double>(step.rows * step.row_tokens);
  const double products = 6 * static_cast<double>(MatmulParameterCount(config)) * tokens;
  const double attention = ModelFlops(config, documents) - products;
  double recompute = 0;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const KeepLevel keep = options.keep_of(static_cast<int>(layer) + 1);
    recompute += RecomputeFlops(config, keep, documents) / static_cast<double>(config.layer_count);
  }
  const double micro_batch = std::min(tokens, static_cast<double>(options.max_micro_batch_tokens));
  const double matmul_flops = speeds.matmul_flops * micro_batch / (micro_batch + kHalfSpeedTokens);
  const double element_wise = ElementWiseBytes(config, options.compute_dtype) * tokens *
                              static_cast<double>(config.layer_count);
  return (products + recompute) / matmul_flops + attention / speeds.attention_flops +
         element_wise / speeds.device_bytes;
}

// Times that a step reads a streamed layer's weights from the host.
double WeightPasses(const StepRows& step, const PipelineOptions& options) {
  if (options.resident_weights) {
    return 1;
  }
  const double micro_batches = options.order == MicroBatchOrder::kLayerMajor
                                   ? 1
                                   : static_cast<double>(step.rows * step.row_tokens) /
                                         static_cast<double>(options.max_micro_batch_tokens);
  return 2 * std::max(micro_batches, 1.0);
}

}  // namespace

double PredictStepSeconds(const ModelConfig& config, const ModelLayout& layout,
                          const StepRows& step, const PipelineOptions& options,
                          const MachineSpeeds& speeds) {
  const Elements elements = CountElements(layout, options);
  const double compute =
      ComputeSeconds(config, step, options, speeds) +
      (elements.all - elements.on_host) * kDeviceUpdateBytes / speeds.device_bytes;
  const double element_bytes = static_cast<double>(SizeBytes(options.compute_dtype));
  const double upload =
      elements.on_host * element_bytes * WeightPasses(step, options) / speeds.bus_bytes;
  // The host updates while the next step's first forward runs: of all micro-batches in layer-major
  // order, else of one. Forward is a third of the work.
  const double tokens = static_cast<double>(step.rows * step.row_tokens);
  const double first_part =
      options.order == MicroBatchOrder::kLayerMajor
          ? 1
          : std::min(1.0, static_cast<double>(options.max_micro_batch_tokens) / tokens);
  const double window = compute / 3 * first_part;
  const double update = std::max(elements.on_host / speeds.host_updates - window, 0.0);
  return std::max(compute, upload) + update;
}

}  // namespace megatrain
