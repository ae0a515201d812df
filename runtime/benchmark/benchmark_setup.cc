#include "runtime/benchmark/benchmark_setup.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/benchmark/grouped_placement.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/model/layer_groups.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/slab_pool.h"
#include "runtime/pipeline/store_options.h"
#include "runtime/planner/planner.h"
#include "runtime/planner/step_prediction.h"

namespace megatrain {
namespace {

constexpr std::array<std::pair<std::string_view, KeepLevel>, kKeepLevelCount> kKeepNames = {
    {{"nothing", KeepLevel::kNothing},
     {"attention", KeepLevel::kAttention},
     {"projections", KeepLevel::kProjections},
     {"products", KeepLevel::kProducts},
     {"all", KeepLevel::kAll}}};

std::optional<KeepLevel> KeepByName(std::string_view name) {
  for (const auto& [known, level] : kKeepNames) {
    if (known == name) {
      return level;
    }
  }
  return std::nullopt;
}

// Such as "products" or, where layers differ, "nothing:20 products:8".
std::string DescribeKeep(const PipelineOptions& options, int64_t layer_count) {
  std::string text;
  for (const auto& [name, level] : kKeepNames) {
    const auto first = options.keep.begin() + 1;
    const int64_t count = std::count(first, first + layer_count, level);
    if (count == layer_count) {
      return std::string(name);
    }
    if (count > 0) {
      absl::StrAppend(&text, text.empty() ? "" : " ", std::string(name), ":", count);
    }
  }
  return text;
}

absl::Status CheckInterval(const BenchmarkFlags& flags, int64_t layer_count) {
  if (layer_count % flags.checkpoint_interval != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint-interval ", flags.checkpoint_interval, " does not divide the ",
                     layer_count, " layers"));
  }
  if (flags.checkpoint_interval > 1 && flags.order == "micro_batch_major") {
    return absl::InvalidArgumentError(
        "--checkpoint-interval above 1 is for --order layer_major, which keeps boundaries");
  }
  return absl::OkStatus();
}

absl::Status CheckCuts(const BenchmarkFlags& flags) {
  if (flags.sequence_length < 2 || flags.tokens % flags.sequence_length != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens ", flags.tokens,
                                                   " is not a number of rows of --sequence-length ",
                                                   flags.sequence_length));
  }
  if (flags.micro_batch_tokens != 0 && flags.micro_batch_tokens < flags.sequence_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("--micro-batch-tokens ", flags.micro_batch_tokens,
                     " has no room for a row of --sequence-length ", flags.sequence_length));
  }
  return absl::OkStatus();
}

// Two flags of which one would be left out of account.
absl::Status CheckContradictions(const BenchmarkFlags& flags) {
  const auto refuse_both = [](bool first, const char* one, bool second, const char* other) {
    return first && second ? absl::InvalidArgumentError(absl::StrCat(one, " contradicts ", other))
                           : absl::OkStatus();
  };
  const bool keeps = flags.keep != "auto" && flags.keep != "nothing";
  const bool on_device = flags.device_state_units > 0 || flags.device_weight_units > 0 ||
                         flags.bus_update_units > 0 || flags.kept_gradient_units > 0;
  const bool resident = flags.weights == "resident";
  MT_RETURN_IF_ERROR(refuse_both(keeps, "--keep", flags.checkpoint_interval > 1,
                                 "--checkpoint-interval above 1, which keeps boundaries alone"));
  MT_RETURN_IF_ERROR(refuse_both(keeps, "--keep", flags.leaves_out(kWithoutKeptActivations),
                                 "--without kept_activations"));
  MT_RETURN_IF_ERROR(refuse_both(on_device, "updates on the device or over the bus",
                                 flags.leaves_out(kWithoutDeviceOptimizer),
                                 "--without device_optimizer"));
  MT_RETURN_IF_ERROR(refuse_both(resident, "--weights resident", flags.weight_slots > 0,
                                 "--weight-slots, which is for weights that stream"));
  return refuse_both(resident, "--weights resident", flags.leaves_out(kWithoutDoubleBuffering),
                     "--without double_buffering");
}

ComputeSetting ComputeSettingOf(const BenchmarkFlags& flags, Backend backend) {
  const bool bf16 =
      flags.compute_dtype.empty() ? backend == Backend::kCuda : flags.compute_dtype == "bf16";
  return {.backend = backend,
          .dtype = bf16 ? ComputeDtype::kBfloat16 : ComputeDtype::kFloat32,
          .attention =
              flags.attention == "fast" ? AttentionMode::kFast : AttentionMode::kDeterministic};
}

// A count that is chosen when it is below 0.
std::optional<int> CountOf(int flag) { return flag < 0 ? std::nullopt : std::optional(flag); }

void LeaveOut(const BenchmarkFlags& flags, PlacementRequest& request) {
  if (flags.leaves_out(kWithoutSlabPool)) {
    request.gradient_slot_count = 1;
  }
  if (flags.leaves_out(kWithoutDeviceOptimizer)) {
    request.device_state_units = 0;
    request.device_weight_units = 0;
    request.bus_update_units = 0;
    request.kept_gradient_units = 0;
  }
  if (flags.leaves_out(kWithoutKeptActivations)) {
    request.keep_level = KeepLevel::kNothing;
  }
}

PinMode PinByName(std::string_view name) {
  return name == "full" ? PinMode::kFull : name == "slabs" ? PinMode::kSlabs : PinMode::kAuto;
}

// Under the placement, if there is one yet.
HostStore::Options StoreOptionsOf(const BenchmarkSetup& setup) {
  return StoreOptions(setup.compute.dtype, setup.placement.pipeline, setup.fold_layers);
}

int64_t StoreBytes(const BenchmarkSetup& setup) {
  int64_t sum = 0;
  for (const auto& [plane, size_bytes] : HostStore::Bytes(setup.layout, StoreOptionsOf(setup))) {
    sum += size_bytes;
  }
  return sum;
}

// What of the host is taken whatever the placement; gradients may lie elsewhere.
int64_t LeastHostBytes(const BenchmarkSetup& setup) {
  return StoreBytes(setup) - HostStore::GradientBytes(setup.layout, StoreOptionsOf(setup)) +
         SlabPool::Bytes(setup.layout);
}

int64_t PlannedHostBytes(const BenchmarkSetup& setup) {
  const DeviceMemoryMap map = MapDeviceMemory(setup.layout, setup.placement.pipeline);
  return StoreBytes(setup) + PinnedArena::Bytes(map.host_parts) + SlabPool::Bytes(setup.layout) +
         (setup.compute.backend == Backend::kCpu ? map.bytes.total() : 0);
}

PlacementRequest RequestOf(const BenchmarkFlags& flags, const BenchmarkSetup& setup,
                           const BenchmarkMachine& machine) {
  PlacementRequest request{.step = setup.step,
                           .compute_dtype = setup.compute.dtype,
                           .device_bytes = machine.device_bytes,
                           .host_bytes = machine.host_bytes - LeastHostBytes(setup),
                           .micro_batch_rows = flags.micro_batch_tokens / flags.sequence_length,
                           .keep_level = KeepByName(flags.keep),
                           .fold_layers = flags.folded_store,
                           .pin = PinByName(flags.pin)};
  if (setup.compute.backend == Backend::kCpu) {
    request.keep_level = KeepLevel::kNothing;  // its templates keep nothing
  }
  if (flags.order != "auto") {
    request.order = flags.order == "layer_major" ? MicroBatchOrder::kLayerMajor
                                                 : MicroBatchOrder::kMicroBatchMajor;
  }
  if (flags.weights != "auto") {
    request.resident_weights = flags.weights == "resident";
  }
  request.device_state_units = CountOf(flags.device_state_units);
  request.device_weight_units = CountOf(flags.device_weight_units);
  request.bus_update_units = CountOf(flags.bus_update_units);
  request.kept_gradient_units = CountOf(flags.kept_gradient_units);
  request.host_boundary_layers = CountOf(flags.host_boundary_layers);
  request.host_kept_micro_batches = CountOf(flags.host_kept_micro_batches);
  request.weight_slot_count = flags.weight_slots;
  LeaveOut(flags, request);
  return request;
}

// Of the placement that was chosen with it all else stays: a planner that must do without would
// keep all layers' weights on the device instead, where there is room.
void LeaveOutDoubleBuffering(const MachineSpeeds& speeds, BenchmarkSetup& setup) {
  PipelineOptions& options = setup.placement.pipeline;
  options.weight_slot_count = 1;
  options.resident_weights = false;
  if (setup.layers_per_unit == 1) {
    const StepPredictor predictor{setup.config, setup.layout, setup.step, speeds};
    setup.placement.predicted = predictor.Predict(options);
  }
}

BenchmarkSetting SettingOf(const BenchmarkFlags& flags, const BenchmarkSetup& setup,
                           const BenchmarkMachine& machine) {
  const PipelineOptions& options = setup.placement.pipeline;
  BenchmarkSetting setting;
  setting.shape = flags.shape;
  setting.layers = setup.config.layer_count;
  setting.width = flags.width;
  setting.parameters = setup.config.ParameterCount();
  setting.tokens_per_step = flags.tokens;
  setting.sequence_length = flags.sequence_length;
  setting.loss_tokens_per_step = flags.tokens - setup.step.rows;
  setting.micro_batch_tokens = options.max_micro_batch_tokens;
  setting.warm_up_steps = flags.warm_up;
  if (flags.hbm_limit_gib > 0) {
    setting.hbm_limit_gib = flags.hbm_limit_gib;
  }
  if (flags.host_limit_gib > 0) {
    setting.host_limit_gib = flags.host_limit_gib;
  }
  setting.compute_dtype = setup.compute.dtype == ComputeDtype::kBfloat16 ? "bf16" : "fp32";
  if (!flags.machine.empty()) {
    const bool is_bf16 = setup.compute.dtype == ComputeDtype::kBfloat16;
    setting.matmul_flops = is_bf16 ? machine.speeds.matmul_flops : machine.speeds.float32_flops;
  }
  setting.attention = flags.attention;
  setting.order = std::string(OrderName(options.order));
  setting.keep = DescribeKeep(options, setup.layout.layer_count());
  setting.resident_weights = options.resident_weights;
  setting.weight_slots = options.weight_slot_count;
  const auto units_at = [&](UpdatePlacement placement) {
    return std::count(options.updates.begin(), options.updates.end(), placement);
  };
  setting.device_state_units = units_at(UpdatePlacement::kDevice);
  setting.device_weight_units = units_at(UpdatePlacement::kOverBusResident);
  setting.kept_gradient_units = units_at(UpdatePlacement::kOverBusKeptGradient);
  setting.bus_update_units = units_at(UpdatePlacement::kOverBus) + setting.kept_gradient_units;
  setting.host_boundary_layers =
      std::count(options.boundary_on_host.begin(), options.boundary_on_host.end(), true);
  setting.host_kept_micro_batches =
      options.kept_on_host.empty() ? 0
                                   : options.CountKept(KeptPlace::kHost, options.max_micro_batches);
  setting.units = static_cast<int64_t>(options.updates.size());
  setting.pin = flags.pin;
  setting.checkpoint_interval = flags.checkpoint_interval;
  setting.without = flags.without;
  setting.folded = flags.folded_store > 0;
  setting.commit = flags.commit;
  setting.command = flags.command;
  return setting;
}

}  // namespace

absl::StatusOr<BenchmarkSetup> SetUpBenchmark(const BenchmarkFlags& flags,
                                              const BenchmarkMachine& machine) {
  MT_RETURN_IF_ERROR(CheckCuts(flags));
  MT_RETURN_IF_ERROR(CheckContradictions(flags));
  BenchmarkSetup setup;
  MT_ASSIGN_OR_RETURN(ModelConfig shape, ShapeByName(flags.shape));
  MT_ASSIGN_OR_RETURN(setup.config, Resized(std::move(shape), flags.layers, flags.width));
  MT_RETURN_IF_ERROR(CheckInterval(flags, setup.config.layer_count));
  setup.layers_per_unit = flags.checkpoint_interval;
  setup.fold_layers = FoldedUnits(flags.folded_store, setup.layers_per_unit);
  setup.layout = GroupLayers(MakeModelLayout(setup.config), setup.layers_per_unit);
  setup.compute = ComputeSettingOf(flags, machine.backend);
  setup.step = {.rows = flags.tokens / flags.sequence_length, .row_tokens = flags.sequence_length};
  if (const int64_t needed_bytes = LeastHostBytes(setup); needed_bytes > machine.host_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the host store takes ", FormatBytes(needed_bytes), " of ",
                     FormatBytes(machine.host_bytes), " of host memory: fold it (--folded-store)"));
  }
  const PlacementRequest request = RequestOf(flags, setup, machine);
  const BackendMemory memory = MakeBackendMemory(
      setup.config, setup.compute,
      {.document_tokens = flags.sequence_length, .row_tokens = flags.sequence_length});
  const MachineSpeeds& speeds = machine.speeds;
  std::optional<Placement> placement =
      setup.layers_per_unit == 1
          ? ChoosePlacement(setup.config, setup.layout, request, memory, speeds)
          : ChooseGroupedPlacement(setup.config, setup.layers_per_unit, request, memory, speeds);
  if (!placement) {
    return absl::ResourceExhaustedError(absl::StrCat("no placement of this shape and step fits ",
                                                     FormatBytes(machine.device_bytes),
                                                     " of device memory under these flags"));
  }
  setup.placement = std::move(*placement);
  if (flags.leaves_out(kWithoutDoubleBuffering)) {
    LeaveOutDoubleBuffering(speeds, setup);
  }
  if (flags.leaves_out(kWithoutOverlap)) {
    setup.placement.predicted = {};  // what is simulated overlaps
  }
  setup.planned_host_bytes = PlannedHostBytes(setup);
  const bool device_is_host = setup.compute.backend == Backend::kCpu;
  if (device_is_host && setup.planned_host_bytes > machine.host_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("store and device memory take ", FormatBytes(setup.planned_host_bytes), " of ",
                     FormatBytes(machine.host_bytes), " of host memory: lower --hbm-limit-gib"));
  }
  setup.setting = SettingOf(flags, setup, machine);
  return setup;
}

}  // namespace megatrain
