#include "runtime/planner/operation_costs.h"

#include <algorithm>

#include "runtime/planner/model_flops.h"

namespace megatrain {
namespace {

// A product of so many rows runs at half of its speed: what tiles and launches cost.
constexpr double kHalfSpeedTokens = 50;

// What the ends of a layer's kernels cost, whatever their size, forward and backward: a 1.5B in one
// micro-batch instead of four saves 29 ms in 28 layers.
constexpr double kForwardEndsSeconds = 8e-5;
constexpr double kBackwardEndsSeconds = 16e-5;

// What element-wise kernels reach of the device's memory bandwidth.
constexpr double kElementWiseShare = 0.87;

// Of attention's time in forward and backward together: 421 and 255 TFLOP/s were measured for 1
// and 2 parts of the products.
constexpr double kForwardShareOfAttention = 0.25;

// Of the element-wise work of a layer: what is forward's, and what of it backward repeats when
// forward kept nothing, beside norms and activation functions, RemadeElements.
constexpr double kForwardShareOfElements = 1.0 / 3;
constexpr double kRepeatedShareOfElements = 0.1;

// Bytes that a kernel moves: AdamW on the device of a parameter (both halves of the master and
// both moments read and written, an fp32 gradient read), the sum of a gradient's squares, its
// rounding, and cross entropy of a logit.
constexpr double kUpdateBytes = 28;
constexpr double kSquaresBytes = 4;
constexpr double kRoundingBytes = 6;
constexpr double kLogitBytes = 9;

// Of a state that passes over the bus: the low half of the master and both moments, each way; and
// the high half where the weights are not on the device.
constexpr double kPassingBytes = 10;
constexpr double kHalfBytes = 2;

// AdamW on the host: both halves of the master and both moments read and written; the gradient.
constexpr double kHostStateBytes = 24;

// Of host memory, for a byte that crosses through a slab: processors read and write it once more.
constexpr double kSlabHostBytes = 3;

// The verdict of a step: sums over units, between two copies of some kilobytes.
constexpr double kNormSeconds = 3e-4;

// Elements that norms, rotation, activation functions and residual additions of one layer read and
// write for a token, forward and backward.
double ElementWiseElements(const ModelConfig& config) {
  const int64_t qkv = (config.head_count + 2 * config.kv_head_count) * config.head_dim;
  return static_cast<double>(16 * config.hidden_size + 9 * ActiveMlpWidth(config) + 6 * qkv);
}

// Of these what backward writes when forward's is not kept: of norms and activation functions.
double RemadeElements(const ModelConfig& config) {
  return static_cast<double>(2 * config.hidden_size + ActiveMlpWidth(config));
}

// Elements that attention's kernels read and write beside their products, for a token and layer.
double AttentionElements(const ModelConfig& config) {
  return static_cast<double>(30 * config.head_count * config.head_dim);
}

}  // namespace

std::string_view ResourceName(Resource resource) {
  switch (resource) {
    case Resource::kCompute:
      return "compute";
    case Resource::kBusUp:
      return "bus_up";
    case Resource::kBusDown:
      return "bus_down";
    case Resource::kHostUpdates:
      return "host_updates";
    case Resource::kDeviceUpdates:
      return "device_updates";
  }
  return "unknown";
}

OperationCosts::OperationCosts(const ModelConfig& config, const ModelLayout& layout,
                               const PipelineOptions& options, const MachineSpeeds& speeds,
                               const StepRows& step, double micro_batches)
    : layout_(layout),
      options_(options),
      speeds_(speeds),
      micro_batch_tokens_(
          std::min(step.tokens(), static_cast<double>(options.max_micro_batch_tokens))),
      tokens_(micro_batch_tokens_ * micro_batches),
      hidden_bytes_(static_cast<double>(config.hidden_size * SizeBytes(options.compute_dtype))),
      layer_(MeasureLayer(config, step)) {
  const double logits = static_cast<double>(config.vocab_size) * tokens_;
  head_seconds_ = Products(6 * logits * static_cast<double>(config.hidden_size)) +
                  DeviceBytes(logits * kLogitBytes);
  embedding_seconds_ = DeviceBytes(2 * hidden_bytes_ * tokens_);
}

double OperationCosts::Products(double flops) const {
  const double peak = options_.compute_dtype == ComputeDtype::kBfloat16 ? speeds_.matmul_flops
                                                                        : speeds_.float32_flops;
  return flops / (peak * micro_batch_tokens_ / (micro_batch_tokens_ + kHalfSpeedTokens));
}

OperationCosts::LayerSeconds OperationCosts::MeasureLayer(const ModelConfig& config,
                                                          const StepRows& step) const {
  const double layers = static_cast<double>(config.layer_count);
  const double share = tokens_ / step.tokens() / layers;  // of the step and of its layers
  const std::array document = {step.row_tokens};
  const double rows = static_cast<double>(step.rows);
  const double dense = 6 * static_cast<double>(MatmulParameterCount(config)) * step.tokens();
  const double head =
      6 * static_cast<double>(config.vocab_size * config.hidden_size) * step.tokens();
  const double element_bytes = static_cast<double>(SizeBytes(options_.compute_dtype));

  const double products = Products((dense - head) * share);
  const double attention =
      (rows * ModelFlops(config, document) - dense) * share / speeds_.attention_flops +
      DeviceBytes(AttentionElements(config) * element_bytes * tokens_);
  const double element_seconds = DeviceBytes(element_bytes * tokens_) / kElementWiseShare;
  const double elements = ElementWiseElements(config) * element_seconds;
  const double remade = RemadeElements(config) * element_seconds;
  LayerSeconds seconds;
  const double ends = tokens_ / micro_batch_tokens_;
  seconds.forward = ends * kForwardEndsSeconds + products / 3 +
                    attention * kForwardShareOfAttention + elements * kForwardShareOfElements;
  seconds.backward = ends * (kForwardEndsSeconds + kBackwardEndsSeconds) + products + attention +
                     elements - remade - seconds.forward;
  for (int level = 0; level < static_cast<int>(KeepLevel::kAll); ++level) {
    const auto keep = static_cast<KeepLevel>(level);
    // RecomputeFlops counts attention's forward as products; it is a tenth of them at most.
    seconds.recompute[level] =
        remade + Products(rows * RecomputeFlops(config, keep, document) * share) +
        (keep < KeepLevel::kProducts ? elements * kRepeatedShareOfElements : 0);
  }
  return seconds;
}

OperationCost OperationCosts::Copy(Resource direction, double bytes) const {
  const bool by_slabs = options_.pin == PinMode::kSlabs;
  const double bus = direction == Resource::kBusUp ? speeds_.bus_up_bytes : speeds_.bus_down_bytes;
  const double rate = by_slabs ? std::min(bus, speeds_.slab_bytes) : bus;
  const double host_bytes = bytes * (by_slabs ? kSlabHostBytes : 1);
  return {.resource = direction,
          .seconds = std::max(bytes / rate, host_bytes / speeds_.host_memory_bytes),
          .host_bytes = host_bytes};
}

double OperationCosts::Elements(int unit) const {
  return static_cast<double>(layout_.units[unit].element_count);
}

double OperationCosts::ChunkElements(const Operation& operation) const {
  const double chunk = static_cast<double>(options_.state_chunk_elements);
  return std::min(chunk, Elements(operation.unit) - chunk * operation.chunk);
}

double OperationCosts::StashBytes(const Operation& operation) const {
  const int unit = operation.unit;
  const bool kept = options_.kept_place(unit, operation.micro_batch) == KeptPlace::kHost;
  return tokens_ * ((options_.stashes_boundary(unit) ? hidden_bytes_ : 0) +
                    (kept ? static_cast<double>(options_.kept_bytes_of(unit)) : 0));
}

double OperationCosts::BackwardSeconds(const Operation& operation) const {
  const bool kept =
      options_.kept_place(operation.unit, operation.micro_batch) != KeptPlace::kNowhere;
  const KeepLevel level = kept ? options_.keep_of(operation.unit) : KeepLevel::kNothing;
  return layer_.backward + layer_.recompute[static_cast<int>(level)];
}

OperationCost OperationCosts::Of(const Operation& operation) const {
  const double element_bytes = static_cast<double>(SizeBytes(options_.compute_dtype));
  switch (operation.kind) {
    case OperationKind::kLoadWeights:
      return Copy(Resource::kBusUp, Elements(operation.unit) * element_bytes);
    case OperationKind::kDownloadGradients:
      return Copy(Resource::kBusDown, Elements(operation.unit) * element_bytes);
    case OperationKind::kStashActivations:
      return Copy(Resource::kBusDown, StashBytes(operation));
    case OperationKind::kFetchActivations:
      return Copy(Resource::kBusUp, StashBytes(operation));
    case OperationKind::kLayerForward:
      return {.seconds = layer_.forward};
    case OperationKind::kLayerBackward:
      return {.seconds = BackwardSeconds(operation)};
    case OperationKind::kHead:
      return {.seconds = head_seconds_};
    case OperationKind::kHeadLoss:
      return {.seconds = head_seconds_ / 3};
    case OperationKind::kEmbedForward:
    case OperationKind::kEmbedBackward:
      return {.seconds = embedding_seconds_};
    case OperationKind::kFinalizeGradients: {
      const bool rounds = !options_.on_device(operation.unit);
      return {.seconds = DeviceBytes(Elements(operation.unit) *
                                     (kSquaresBytes + (rounds ? kRoundingBytes : 0)))};
    }
    case OperationKind::kDownloadResults:
      return {.resource = Resource::kBusDown};
    case OperationKind::kNorm:
      return {.resource = Resource::kHostUpdates, .seconds = kNormSeconds};
    case OperationKind::kUpdate:
      return {.resource = Resource::kHostUpdates,
              .seconds = Elements(operation.unit) / speeds_.host_updates,
              .host_bytes = Elements(operation.unit) * (kHostStateBytes + element_bytes)};
    case OperationKind::kUpdateOnDevice:
      return {.resource = Resource::kDeviceUpdates,
              .seconds = DeviceBytes(Elements(operation.unit) * kUpdateBytes)};
    case OperationKind::kLoadState:
      return Copy(Resource::kBusUp,
                  ChunkElements(operation) *
                      (kPassingBytes + (options_.on_device(operation.unit) ? 0 : kHalfBytes) +
                       (options_.gradient_crosses(operation.unit) ? element_bytes : 0)));
    case OperationKind::kUpdateChunk:
      return {.resource = Resource::kDeviceUpdates,
              .seconds = DeviceBytes(ChunkElements(operation) * kUpdateBytes)};
    case OperationKind::kStoreState:
      return Copy(Resource::kBusDown,
                  ChunkElements(operation) *
                      (kPassingBytes + (options_.on_device(operation.unit) ? 0 : kHalfBytes)));
  }
  return {};
}

}  // namespace megatrain
