#include "runtime/benchmark/result_line.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

constexpr double kTera = 1e12;
constexpr double kGibibyte = 1 << 30;
constexpr double kNanosecondsPerSecond = 1e9;
constexpr double kLeastToldSeconds = 5e-4;  // that a stream waits in a step

// Rates and times of one step.
struct Speed {
  double step_seconds;
  double tokens_per_second;
  double loss_tokens_per_second;
  double model_tflops;
  double hardware_tflops;
  std::optional<double> utilization;  // model FLOPs against the rate of products alone
};

Speed SpeedOf(const BenchmarkSetting& setting, const BenchmarkFigures& figures) {
  const double seconds =
      absl::ToDoubleSeconds(figures.elapsed) / static_cast<double>(figures.steps);
  return {.step_seconds = seconds,
          .tokens_per_second = static_cast<double>(setting.tokens_per_step) / seconds,
          .loss_tokens_per_second = static_cast<double>(setting.loss_tokens_per_step) / seconds,
          .model_tflops = figures.model_flops_per_step / seconds / kTera,
          .hardware_tflops = figures.hardware_flops_per_step / seconds / kTera,
          .utilization = setting.matmul_flops ? std::optional(figures.model_flops_per_step /
                                                              seconds / *setting.matmul_flops)
                                              : std::nullopt};
}

// Parts of the wall time of the traced steps.
struct Shares {
  double sum;   // of all kernels' times, which may run side by side
  double busy;  // with at least one running
};

Shares SharesOf(const BenchmarkFigures::Traced& traced) {
  const double wall = absl::ToDoubleSeconds(traced.elapsed) * kNanosecondsPerSecond;
  return {.sum = static_cast<double>(traced.kernels.sum_nanoseconds) / wall,
          .busy = static_cast<double>(traced.kernels.busy_nanoseconds) / wall};
}

void AddSetting(const BenchmarkSetting& setting, nlohmann::ordered_json& line) {
  line["shape"] = setting.shape;
  line["layers"] = setting.layers;
  line["width"] = setting.width;
  line["parameters"] = setting.parameters;
  line["tokens_per_step"] = setting.tokens_per_step;
  line["sequence_length"] = setting.sequence_length;
  line["loss_tokens_per_step"] = setting.loss_tokens_per_step;
  line["padded_tokens_per_step"] = 0;  // rows are packed: there is no padding
  line["micro_batch_tokens"] = setting.micro_batch_tokens;
  line["warm_up_steps"] = setting.warm_up_steps;
  line["hbm_limit_gib"] = nullptr;
  if (setting.hbm_limit_gib) {
    line["hbm_limit_gib"] = *setting.hbm_limit_gib;
  }
  line["host_limit_gib"] = nullptr;
  if (setting.host_limit_gib) {
    line["host_limit_gib"] = *setting.host_limit_gib;
  }
  line["compute_dtype"] = setting.compute_dtype;
  line["attention"] = setting.attention;
  line["order"] = setting.order;
  line["keep"] = setting.keep;
  line["resident_weights"] = setting.resident_weights;
  line["weight_slots"] = setting.weight_slots;
  line["device_state_units"] = setting.device_state_units;
  line["device_weight_units"] = setting.device_weight_units;
  line["bus_update_units"] = setting.bus_update_units;
  line["kept_gradient_units"] = setting.kept_gradient_units;
  line["units"] = setting.units;
  line["host_boundary_layers"] = setting.host_boundary_layers;
  line["host_kept_micro_batches"] = setting.host_kept_micro_batches;
  line["pin"] = setting.pin;
  line["checkpoint_interval"] = setting.checkpoint_interval;
  line["folded"] = setting.folded;
  line["without"] = setting.without;
}

// Seconds of one step, by resource and by what the compute stream waits for.
void AddPrediction(const SimulatedStep& predicted, nlohmann::ordered_json& line) {
  for (const Resource resource : kAllResources) {
    line["predicted_busy_seconds"][std::string(ResourceName(resource))] =
        predicted.busy_seconds[static_cast<size_t>(resource)];
  }
  for (const WaitReason reason : kAllWaitReasons) {
    line["predicted_compute_wait_seconds"][std::string(WaitReasonName(reason))] =
        predicted.compute_waits[static_cast<size_t>(reason)];
  }
}

// Seconds of one step, by stream.
void AddStreams(const BenchmarkFigures& figures, nlohmann::ordered_json& line) {
  const double steps = static_cast<double>(figures.steps);
  for (const StreamKind kind : kAllStreams) {
    const StreamFigures& stream = figures.streams[static_cast<size_t>(kind)];
    const std::string name(StreamName(kind));
    line["busy_seconds"][name] = absl::ToDoubleSeconds(stream.busy) / steps;
    for (const WaitReason reason : kAllWaitReasons) {
      line["wait_seconds"][name][std::string(WaitReasonName(reason))] =
          absl::ToDoubleSeconds(stream.wait(reason)) / steps;
    }
  }
}

// A line a stream: busy seconds of a step, and what it waited for.
void AppendStreams(const BenchmarkFigures& figures, std::string& text) {
  const double steps = static_cast<double>(figures.steps);
  absl::StrAppend(&text, "  predicted busy seconds a step:");
  for (const Resource resource : kAllResources) {
    absl::StrAppendFormat(&text, " %s %.4f", std::string(ResourceName(resource)),
                          figures.predicted.busy_seconds[static_cast<size_t>(resource)]);
  }
  for (const StreamKind kind : kAllStreams) {
    const StreamFigures& stream = figures.streams[static_cast<size_t>(kind)];
    absl::StrAppendFormat(&text, "\n  %s: busy %.4f s a step", std::string(StreamName(kind)),
                          absl::ToDoubleSeconds(stream.busy) / steps);
    for (const WaitReason reason : kAllWaitReasons) {
      const double seconds = absl::ToDoubleSeconds(stream.wait(reason)) / steps;
      if (seconds >= kLeastToldSeconds) {
        absl::StrAppendFormat(&text, ", %s %.4f", std::string(WaitReasonName(reason)), seconds);
      }
    }
  }
}

}  // namespace

std::string ToJsonLine(const BenchmarkSetting& setting, const BenchmarkFigures& figures) {
  const Speed speed = SpeedOf(setting, figures);
  nlohmann::ordered_json line;
  AddSetting(setting, line);
  line["steps"] = figures.steps;
  line["model_tflops"] = speed.model_tflops;
  line["hardware_tflops"] = speed.hardware_tflops;
  line["model_flops_utilization"] = nullptr;
  if (speed.utilization) {
    line["model_flops_utilization"] = *speed.utilization;
  }
  line["tokens_per_second"] = speed.tokens_per_second;
  line["loss_tokens_per_second"] = speed.loss_tokens_per_second;
  line["step_seconds"] = speed.step_seconds;
  line["steady_step_seconds"] = nullptr;
  if (figures.steady_step) {
    line["steady_step_seconds"] = absl::ToDoubleSeconds(*figures.steady_step);
  }
  line["predicted_step_seconds"] = nullptr;
  if (figures.is_predicted()) {
    line["predicted_step_seconds"] = figures.predicted.seconds;
  }
  line["kernel_time_share"] = nullptr;
  line["kernel_busy_share"] = nullptr;
  if (figures.traced) {
    const Shares shares = SharesOf(*figures.traced);
    line["kernel_time_share"] = shares.sum;
    line["kernel_busy_share"] = shares.busy;
  }
  AddStreams(figures, line);
  AddPrediction(figures.predicted, line);
  line["planned_device_bytes"] = figures.planned_device_bytes;
  line["peak_device_bytes"] = figures.peak_device_bytes;
  line["planned_host_bytes"] = figures.planned_host_bytes;
  line["uses_slabs"] = figures.uses_slabs;
  line["peak_host_bytes"] = figures.peak_host_bytes;
  line["last_loss"] = figures.loss;
  line["backend"] = setting.backend;
  line["machine"] = setting.machine;
  line["commit"] = setting.commit;
  line["command"] = setting.command;
  return line.dump();
}

std::string ToText(const BenchmarkSetting& setting, const BenchmarkFigures& figures) {
  const Speed speed = SpeedOf(setting, figures);
  std::string text = absl::StrFormat(
      "%s, %d layers, %d tokens a step in rows of %d, micro-batches of %d: %.1f model TFLOP/s "
      "(%.1f hardware), %.0f tokens/s (%.0f with a loss, 0 padded), %.4f s a step (%s)\n",
      setting.shape, setting.layers, setting.tokens_per_step, setting.sequence_length,
      setting.micro_batch_tokens, speed.model_tflops, speed.hardware_tflops,
      speed.tokens_per_second, speed.loss_tokens_per_second, speed.step_seconds,
      figures.is_predicted() ? absl::StrFormat("predicted %.4f", figures.predicted.seconds)
                             : "not predicted");
  absl::StrAppendFormat(
      &text,
      "  %s, %s attention, %s, keeps %s, weights %s in %d slots; of %d units %d are updated on the "
      "device, %d there with their states passing, %d over the bus (%d keep their gradient there); "
      "of %d "
      "layers %d inputs, of a step %d micro-batches wait on the host%s%s%s; device %.2f GiB "
      "planned, "
      "%.2f GiB "
      "at most; host %.2f GiB planned, %.2f GiB at most; loss %.4f\n",
      setting.compute_dtype, setting.attention, setting.order, setting.keep,
      setting.resident_weights ? "resident" : "streamed", setting.weight_slots, setting.units,
      setting.device_state_units, setting.device_weight_units, setting.bus_update_units,
      setting.kept_gradient_units, setting.layers, setting.host_boundary_layers,
      setting.host_kept_micro_batches,
      setting.without.empty() ? ""
                              : absl::StrCat("; without ", absl::StrJoin(setting.without, ",")),
      setting.folded ? ", folded store: speed only, nothing is learned" : "",
      figures.uses_slabs ? "; copies through slabs" : "",
      static_cast<double>(figures.planned_device_bytes) / kGibibyte,
      static_cast<double>(figures.peak_device_bytes) / kGibibyte,
      static_cast<double>(figures.planned_host_bytes) / kGibibyte,
      static_cast<double>(figures.peak_host_bytes) / kGibibyte, figures.loss);
  AppendStreams(figures, text);
  if (figures.traced) {
    const Shares shares = SharesOf(*figures.traced);
    absl::StrAppendFormat(&text, "\n  kernels %.1f %% of the wall time (%.1f %% with any running)",
                          100 * shares.sum, 100 * shares.busy);
  }
  return text + "\n";
}

}  // namespace megatrain
