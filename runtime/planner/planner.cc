#include "runtime/planner/planner.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/config/model_layout.h"
#include "runtime/data/data_memory.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/results_layout.h"
#include "runtime/pipeline/slab_pool.h"
#include "runtime/pipeline/store_options.h"
#include "runtime/planner/backend_memory.h"
#include "runtime/planner/placement.h"
#include "runtime/planner/plan_verdict.h"

namespace megatrain {
namespace {

// A micro-batch counts its tokens in int32.
constexpr int64_t kMaxStepTokens = int64_t{1} << 28;

// Of activations: far above any machine, and far below where sums overflow.
constexpr double kMaxActivationBytes = 1e18;

// Buffers of import and export: pieces of tensors on their way from and to files. A checkpoint is
// written from the store's own pages and read into them; only its manifest lies here.
constexpr int64_t kIoBufferBytes = int64_t{16} << 20;

// Kinds of memory; see Plan.
constexpr char kGradients[] = "gradients";

// Double buffering: one slot is filled or emptied while the other is used.
constexpr int kDefaultSlotCount = 2;

// Token counts that follow from a shape; micro-batches as they are when they are not chosen.
struct TokenCounts {
  int64_t document = 0;
  int64_t row = 0;
  int64_t micro_batch_rows = 0;
  int64_t micro_batch = 0;
  int64_t step = 0;
  int64_t micro_batches = 0;
};

// Absent when the shape's counts are out of range.
std::optional<TokenCounts> CountTokens(const ModelConfig& config, const JobShape& shape) {
  const int64_t micro_rows = shape.micro_batch_rows == 0
                                 ? shape.batch_rows
                                 : std::min(shape.micro_batch_rows, shape.batch_rows);
  if (shape.batch_rows < 1 || micro_rows < 1 || shape.max_sequence_length < 1 ||
      shape.longest_row_tokens < 0 || shape.row_count < 0 || shape.validation_row_count < 0 ||
      shape.weight_slot_count < 0 || shape.batch_rows > kMaxStepTokens ||
      shape.max_sequence_length > kMaxStepTokens) {
    return std::nullopt;
  }
  TokenCounts tokens;
  tokens.document = shape.longest_row_tokens == 0
                        ? shape.max_sequence_length
                        : std::min(shape.longest_row_tokens, shape.max_sequence_length);
  tokens.row = shape.packing ? shape.max_sequence_length : tokens.document;
  tokens.micro_batch_rows = micro_rows;
  tokens.micro_batch = micro_rows * tokens.row;
  tokens.step = shape.batch_rows * tokens.row;
  tokens.micro_batches = (shape.batch_rows + micro_rows - 1) / micro_rows;
  const double activation_bytes =
      static_cast<double>(tokens.step + tokens.micro_batches * kActivationAlignmentTokens) *
      static_cast<double>(config.hidden_size * (config.layer_count + 2)) * sizeof(float);
  if (tokens.step > kMaxStepTokens || activation_bytes > kMaxActivationBytes) {
    return std::nullopt;
  }
  return tokens;
}

int64_t Sum(const std::vector<MemoryItem>& items) {
  int64_t total = 0;
  for (const MemoryItem& item : items) {
    total += item.size_bytes;
  }
  return total;
}

// Slabs are there when they are asked for, and always on a GPU: for what is not pinned.
int64_t SlabBytes(const ModelLayout& layout, const JobShape& shape, Backend backend) {
  return shape.pin == PinMode::kSlabs || backend == Backend::kCuda ? SlabPool::Bytes(layout) : 0;
}

// But for the CPU backend's device arena; on a GPU some of the gradients may wait elsewhere.
std::vector<MemoryItem> HostItems(const ModelLayout& layout, const JobShape& shape,
                                  const MachineProfile& machine, const TokenCounts& tokens) {
  std::vector<MemoryItem> items;
  for (const auto& [kind, size_bytes] :
       HostStore::Bytes(layout, StoreOptions(shape.compute_dtype, {}))) {
    items.push_back({kind, size_bytes});
  }
  items.push_back({"libraries", machine.engine_baseline_bytes});
  items.push_back({"io_buffers", kIoBufferBytes});
  const int64_t validation_bytes =
      shape.validation_row_count > 0 ? DataMemoryBytes(shape.validation_row_count, tokens.step) : 0;
  items.push_back({"data", DataMemoryBytes(shape.row_count, tokens.step) + validation_bytes});
  if (const int64_t slabs = SlabBytes(layout, shape, machine.backend); slabs > 0) {
    items.push_back({"pinned_slabs", slabs});
  }
  return items;
}

// The shortest document has a token to read and one to predict.
constexpr int64_t kShortestDocument = 2;

BackendMemory MemoryOf(const ModelConfig& config, const JobShape& shape, Backend backend,
                       const TokenCounts& tokens) {
  return MakeBackendMemory(
      config, {.backend = backend, .dtype = shape.compute_dtype, .attention = shape.attention},
      {.document_tokens = tokens.document,
       .row_tokens = tokens.row,
       .row_documents = shape.packing ? std::max<int64_t>(tokens.row / kShortestDocument, 1) : 1});
}

// On processors nothing is gained by what a device holds: of both orders the one that takes less.
PipelineOptions ChooseOnCpu(const ModelConfig& config, const ModelLayout& layout,
                            const JobShape& shape, const TokenCounts& tokens) {
  PipelineOptions options{
      .order = shape.order.value_or(MicroBatchOrder::kLayerMajor),
      .weight_slot_count = shape.resident_weights         ? static_cast<int>(config.layer_count)
                           : shape.weight_slot_count == 0 ? kDefaultSlotCount
                                                          : shape.weight_slot_count,
      .gradient_slot_count = kDefaultSlotCount,
      .resident_weights = shape.resident_weights,
      .pin = shape.pin,
      .compute_dtype = shape.compute_dtype,
      .max_micro_batch_tokens = tokens.micro_batch,
      .max_step_tokens = tokens.step,
      .max_micro_batches = static_cast<int>(tokens.micro_batches),
      .workspace_bytes =
          MemoryOf(config, shape, Backend::kCpu, tokens).workspace_bytes(tokens.micro_batch)};
  if (!shape.order.has_value()) {
    PipelineOptions other = options;
    other.order = MicroBatchOrder::kMicroBatchMajor;
    if (MapDeviceMemory(layout, other).bytes.total() <
        MapDeviceMemory(layout, options).bytes.total()) {
      return other;
    }
  }
  return options;
}

MicroBatchLimits LimitsOf(const JobShape& shape, const TokenCounts& tokens, int64_t rows) {
  const int64_t row_documents = shape.packing ? tokens.row / kShortestDocument : 1;
  return {.tokens = rows * tokens.row,
          .document_tokens = tokens.document,
          .documents = rows * std::max<int64_t>(row_documents, 1)};
}

JobMemory JobMemoryOf(const ModelConfig& config, const JobShape& shape, Backend backend,
                      const MicroBatchLimits& limits) {
  return MakeJobMemory(
      config, {.backend = backend, .dtype = shape.compute_dtype, .attention = shape.attention},
      limits);
}

// The largest that a plan may choose; its memory is set aside before the choice.
int64_t MostMicroBatchRows(const JobShape& shape, const TokenCounts& tokens) {
  return shape.micro_batch_rows > 0
             ? tokens.micro_batch_rows
             : std::clamp<int64_t>(kMostMicroBatchTokens / tokens.row, 1, shape.batch_rows);
}

// What a pipeline may take.
struct FreeMemory {
  int64_t device_bytes;
  int64_t host_bytes;
};

// On a GPU the fastest placement in `free`; where none fits, or with `smallest`, the one that takes
// least.
Placement ChooseOnGpu(const ModelConfig& config, const ModelLayout& layout, const JobShape& shape,
                      const MachineSpeeds& speeds, const TokenCounts& tokens,
                      const FreeMemory& free, bool smallest) {
  PlacementRequest request{.step = {.rows = shape.batch_rows, .row_tokens = tokens.row},
                           .compute_dtype = shape.compute_dtype,
                           .device_bytes = free.device_bytes,
                           .host_bytes = free.host_bytes,
                           .micro_batch_rows = shape.micro_batch_rows,
                           .order = shape.order,
                           .weight_slot_count = shape.weight_slot_count,
                           .pin = shape.pin};
  if (shape.resident_weights) {
    request.resident_weights = true;
  }
  const BackendMemory memory = MemoryOf(config, shape, Backend::kCuda, tokens);
  if (!smallest) {
    if (const auto best = ChoosePlacement(config, layout, request, memory, speeds)) {
      return *best;
    }
  }
  return SmallestPlacement(config, layout, request, memory, speeds);
}

int64_t Limited(int64_t available_bytes, int64_t limit_bytes) {
  return limit_bytes > 0 ? std::min(available_bytes, limit_bytes) : available_bytes;
}

// What of a step lies on the host: results, tables on their way to a GPU, and activations.
void AddStepMemory(const DeviceMemoryMap& map, const JobMemory& job, Plan& plan) {
  plan.host.push_back({"step_tables", map.results.size_bytes + job.host_bytes});
  if (const int64_t bytes = PinnedArena::Bytes(map.host_parts); bytes > 0) {
    plan.host.push_back({"stashed_activations", bytes});
  }
}

std::vector<MemoryItem> DeviceItems(const DeviceBytes& arena, const JobMemory& job) {
  std::vector<MemoryItem> items = {{"weights", arena.weights},
                                   {kGradients, arena.gradients},
                                   {"states", arena.states},
                                   {"activations", arena.activations},
                                   {"workspace", arena.workspace + job.device_bytes}};
  if (arena.kept_gradients > 0) {
    items.push_back({kKeptGradients, arena.kept_gradients});
  }
  return items;
}

// Fills in the pipeline and its cut of a step.
void Choose(const JobShape& shape, const TokenCounts& tokens, Placement placement, Plan& plan) {
  plan.pipeline = std::move(placement.pipeline);
  plan.micro_batch_rows = placement.micro_batch_rows;
  plan.predicted = placement.predicted;
  plan.step = {.rows = shape.batch_rows, .row_tokens = tokens.row};
  plan.limits = LimitsOf(shape, tokens, plan.micro_batch_rows);
}

absl::Status CheckTrainableOn(Backend backend, const ModelConfig& config) {
  const absl::Status status = CheckTrainable(config);
  return status.ok() && backend == Backend::kCuda ? CheckCudaTrainable(config) : status;
}

struct GpuPlanning {
  const ModelConfig& config;
  const ModelLayout& layout;
  const JobShape& shape;
  const MachineProfile& machine;
  const TokenCounts& tokens;
  bool smallest;
};

// Fills in what lies on the GPU, and on the host beside the items that are there already.
void PlanOnGpu(const GpuPlanning& job, Plan& plan) {
  const auto memory_of = [&](int64_t rows) {
    return JobMemoryOf(job.config, job.shape, Backend::kCuda,
                       LimitsOf(job.shape, job.tokens, rows));
  };
  const int64_t results_bytes =
      ResultsLayout(job.layout, static_cast<int>(job.shape.batch_rows)).size_bytes() +
      kDeviceAlignmentBytes;
  const JobMemory most = memory_of(MostMicroBatchRows(job.shape, job.tokens));
  const auto gradients = std::find_if(plan.host.begin(), plan.host.end(),
                                      [](const auto& item) { return item.kind == kGradients; });
  const int64_t host_bytes =
      Sum(plan.host) - gradients->size_bytes + most.host_bytes + results_bytes;
  const FreeMemory free = {.device_bytes = plan.device_available_bytes - most.device_bytes,
                           .host_bytes = plan.host_available_bytes - host_bytes};
  Choose(job.shape, job.tokens,
         ChooseOnGpu(job.config, job.layout, job.shape, job.machine.speeds, job.tokens, free,
                     job.smallest),
         plan);
  const DeviceMemoryMap map = MapDeviceMemory(job.layout, plan.pipeline);
  const JobMemory actual = memory_of(plan.micro_batch_rows);
  plan.device = DeviceItems(map.bytes, actual);
  gradients->size_bytes =
      HostStore::GradientBytes(job.layout, StoreOptions(job.shape.compute_dtype, plan.pipeline));
  AddStepMemory(map, actual, plan);
  plan.device_state_bytes = DeviceStateBytes(map);
}

// Everything but the verdict's words; with `smallest`, only whether it fits is of use.
Plan PlanMemory(const ModelConfig& config, const JobShape& shape, const MachineProfile& machine,
                const TokenCounts& tokens, bool smallest = false) {
  Plan plan;
  plan.trainable = CheckTrainableOn(machine.backend, config).ok();
  plan.parameter_count = config.ParameterCount();
  plan.active_parameter_count = config.ActiveParameterCount();
  const ModelLayout layout = PlanningLayout(config);
  plan.host = HostItems(layout, shape, machine, tokens);
  plan.host_available_bytes = Limited(machine.host_available_bytes, shape.host_limit_bytes);
  if (machine.backend == Backend::kCpu) {
    Choose(shape, tokens,
           {.pipeline = ChooseOnCpu(config, layout, shape, tokens),
            .micro_batch_rows = tokens.micro_batch_rows},
           plan);
    const DeviceMemoryMap map = MapDeviceMemory(layout, plan.pipeline);
    plan.device = DeviceItems(map.bytes, /*job=*/{});
    plan.host.push_back({"device_arena", Sum(plan.device)});
    AddStepMemory(map, /*job=*/{}, plan);
    plan.device_available_bytes = Limited(plan.host_available_bytes, shape.device_limit_bytes);
  } else {
    plan.device_available_bytes = UsableDeviceBytes(machine, shape.device_limit_bytes);
    PlanOnGpu({config, layout, shape, machine, tokens, smallest}, plan);
  }
  plan.host_bytes = Sum(plan.host);
  plan.device_bytes = Sum(plan.device);
  plan.fits = plan.host_bytes <= plan.host_available_bytes &&
              plan.device_bytes <= plan.device_available_bytes;
  return plan;
}

bool Fits(const ModelConfig& config, const JobShape& shape, const MachineProfile& machine) {
  const std::optional<TokenCounts> tokens = CountTokens(config, shape);
  return tokens && PlanMemory(config, shape, machine, *tokens, /*smallest=*/true).fits;
}

}  // namespace

Plan PlanJob(const ModelConfig& config, const JobShape& shape, const MachineProfile& machine) {
  const std::optional<TokenCounts> tokens = CountTokens(config, shape);
  if (!tokens) {
    Plan plan;
    plan.verdict = absl::StrCat(
        "does not fit: a count of the job is out of range, or a step has more than ",
        kMaxStepTokens, " tokens; lower train.batch_rows or train.max_sequence_length");
    return plan;
  }
  Plan plan = PlanMemory(config, shape, machine, *tokens);
  if (!plan.fits) {
    plan.predicted = {};  // of a step that cannot be
  }
  plan.verdict = FitVerdict(
      {shape, machine, plan, [&](const JobShape& other, const MachineProfile& other_machine) {
         return Fits(config, other, other_machine);
       }});
  if (!plan.trainable) {
    absl::StrAppend(&plan.verdict, "; it cannot be trained yet: ",
                    std::string(CheckTrainableOn(machine.backend, config).message()));
  }
  return plan;
}

ModelLayout PlanningLayout(const ModelConfig& config) {
  if (CheckTrainable(config).ok()) {
    return MakeModelLayout(config);
  }
  const int64_t table = config.vocab_size * config.hidden_size;
  const int64_t head = (config.tied ? 0 : table) + config.hidden_size;
  const int64_t layers = config.ParameterCount() - table - head;
  ModelLayout layout{.units = {}, .tied = config.tied};
  const auto add = [&](UnitKind kind, int layer, int64_t elements) {
    layout.units.push_back(UnitLayout{kind, layer, {}, elements});
  };
  add(UnitKind::kEmbedding, -1, table);
  layout.units.back().tensors.push_back({.role = TensorRole::kTokenTable,
                                         .name = "",
                                         .shape = {config.vocab_size, config.hidden_size},
                                         .offset_elements = 0,
                                         .element_count = table,
                                         .decays = true});
  for (int layer = 0; layer < config.layer_count; ++layer) {
    add(UnitKind::kDecoderLayer, layer, (layers + config.layer_count - 1) / config.layer_count);
  }
  add(UnitKind::kHead, -1, head);
  return layout;
}

std::string FormatBytes(int64_t size_bytes) {
  constexpr double kMebibyte = 1 << 20;
  constexpr double kGibibyte = 1 << 30;
  const double bytes = static_cast<double>(size_bytes);
  return bytes >= kGibibyte ? absl::StrFormat("%.2f GiB", bytes / kGibibyte)
                            : absl::StrFormat("%.1f MiB", bytes / kMebibyte);
}

std::string_view OrderName(MicroBatchOrder order) {
  return order == MicroBatchOrder::kLayerMajor ? "layer_major" : "micro_batch_major";
}

}  // namespace megatrain
