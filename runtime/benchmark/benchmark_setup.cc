#include "runtime/benchmark/benchmark_setup.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/planner/planner.h"

namespace megatrain {
namespace {

constexpr std::array<std::pair<std::string_view, KeepLevel>, kKeepLevelCount> kKeepNames = {
    {{"nothing", KeepLevel::kNothing},
     {"attention", KeepLevel::kAttention},
     {"projections", KeepLevel::kProjections},
     {"all", KeepLevel::kAll}}};

std::optional<KeepLevel> KeepByName(std::string_view name) {
  for (const auto& [known, level] : kKeepNames) {
    if (known == name) {
      return level;
    }
  }
  return std::nullopt;
}

// Such as "all" or, where layers differ, "nothing:20 all:8".
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

ComputeSetting ComputeSettingOf(const BenchmarkFlags& flags, Backend backend) {
  const bool bf16 =
      flags.compute_dtype.empty() ? backend == Backend::kCuda : flags.compute_dtype == "bf16";
  return {.backend = backend,
          .dtype = bf16 ? ComputeDtype::kBfloat16 : ComputeDtype::kFloat32,
          .attention =
              flags.attention == "fast" ? AttentionMode::kFast : AttentionMode::kDeterministic};
}

PlacementRequest RequestOf(const BenchmarkFlags& flags, const BenchmarkSetup& setup,
                           int64_t device_bytes) {
  PlacementRequest request{.step = setup.step,
                           .compute_dtype = setup.compute.dtype,
                           .device_bytes = device_bytes,
                           .micro_batch_rows = flags.micro_batch_tokens / flags.sequence_length,
                           .keep_level = KeepByName(flags.keep)};
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
  if (flags.device_state_units >= 0) {
    request.device_state_units = flags.device_state_units;
  }
  return request;
}

BenchmarkSetting SettingOf(const BenchmarkFlags& flags, const BenchmarkSetup& setup) {
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
  setting.steps = flags.steps;
  setting.warm_up_steps = flags.warm_up;
  if (flags.hbm_limit_gib > 0) {
    setting.hbm_limit_gib = flags.hbm_limit_gib;
  }
  setting.compute_dtype = setup.compute.dtype == ComputeDtype::kBfloat16 ? "bf16" : "fp32";
  setting.attention = flags.attention;
  setting.order = std::string(OrderName(options.order));
  setting.keep = DescribeKeep(options, setup.config.layer_count);
  setting.resident_weights = options.resident_weights;
  setting.device_state_units =
      std::count(options.updates.begin(), options.updates.end(), UpdatePlacement::kDevice);
  setting.units = static_cast<int64_t>(options.updates.size());
  setting.folded = flags.folded_store > 0;
  setting.commit = flags.commit;
  setting.command = flags.command;
  return setting;
}

}  // namespace

absl::StatusOr<BenchmarkSetup> SetUpBenchmark(const BenchmarkFlags& flags, Backend backend,
                                              int64_t device_bytes) {
  MT_RETURN_IF_ERROR(CheckCuts(flags));
  BenchmarkSetup setup;
  MT_ASSIGN_OR_RETURN(ModelConfig shape, ShapeByName(flags.shape));
  MT_ASSIGN_OR_RETURN(setup.config, Resized(std::move(shape), flags.layers, flags.width));
  setup.compute = ComputeSettingOf(flags, backend);
  setup.step = {.rows = flags.tokens / flags.sequence_length, .row_tokens = flags.sequence_length};
  const PlacementRequest request = RequestOf(flags, setup, device_bytes);
  const BackendMemory memory = MakeBackendMemory(
      setup.config, setup.compute,
      {.document_tokens = flags.sequence_length, .row_tokens = flags.sequence_length});
  std::optional<Placement> placement = ChoosePlacement(setup.config, MakeModelLayout(setup.config),
                                                       request, memory, MachineSpeeds{});
  if (!placement) {
    return absl::ResourceExhaustedError(absl::StrCat("no placement of this shape and step fits ",
                                                     FormatBytes(device_bytes),
                                                     " of device memory under these flags"));
  }
  setup.placement = std::move(*placement);
  setup.setting = SettingOf(flags, setup);
  return setup;
}

}  // namespace megatrain
