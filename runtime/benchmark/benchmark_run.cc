#include "runtime/benchmark/benchmark_run.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/allowed_processors.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/benchmark/benchmark_setup.h"
#include "runtime/benchmark/random_model.h"
#include "runtime/benchmark/result_line.h"
#include "runtime/machine/measure_machine.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/model_flops.h"
#include "runtime/planner/planner.h"
#include "runtime/trainer/model_session.h"

namespace megatrain {
namespace {

// Steps train on these in turn, and one is submitted while another runs.
constexpr int kDifferentSteps = 4;
constexpr int kStepsOnTheirWay = 2;

constexpr double kGibibyte = 1 << 30;

// Buffers of the runs themselves: tokens of some steps, and what a library adds while it runs.
constexpr int64_t kOwnHostBytes = int64_t{512} << 20;

// What the pipeline may take of the device.
absl::StatusOr<int64_t> UsableDeviceBytes(const BenchmarkFlags& flags, ComputeBackend& backend) {
  const int64_t limit_bytes = static_cast<int64_t>(flags.hbm_limit_gib * kGibibyte);
  if (backend.kind() == Backend::kCpu) {
    MT_ASSIGN_OR_RETURN(const HostMemory host, ReadAvailableHostMemory(""));
    return limit_bytes > 0 ? limit_bytes : host.available_bytes / 2;
  }
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory device, backend.ReadDeviceMemory());
  return PipelineDeviceBytes(device.total_bytes, device.free_bytes, limit_bytes);
}

int ThreadsOf(const BenchmarkFlags& flags) {
  return flags.threads > 0 ? flags.threads : AllowedProcessors();
}

absl::StatusOr<BenchmarkMachine> MachineOf(const BenchmarkFlags& flags,
                                           const BenchmarkParts& parts) {
  BenchmarkMachine machine{.backend = parts.backend.kind()};
  if (!flags.machine.empty()) {
    PosixFileSystem files;
    MT_ASSIGN_OR_RETURN(const Machine known,
                        KnowMachine(flags.machine, ThreadsOf(flags), ForeignFile::kRefuse,
                                    parts.backend, files, parts.clock));
    machine.speeds = known.profile.speeds;
  }
  MT_ASSIGN_OR_RETURN(machine.device_bytes, UsableDeviceBytes(flags, parts.backend));
  MT_ASSIGN_OR_RETURN(const HostMemory host, ReadAvailableHostMemory(""));
  machine.host_bytes = host.available_bytes;
  if (flags.host_limit_gib > 0) {
    const auto limit_bytes = static_cast<int64_t>(flags.host_limit_gib * kGibibyte);
    machine.host_bytes = std::min(limit_bytes, machine.host_bytes);
  }
  return machine;
}

// Random steps through a session's pipeline.
class BenchmarkRun {
 public:
  BenchmarkRun(const BenchmarkSetup& setup, const BenchmarkParts& parts, ModelSession& session)
      : setup_(setup), parts_(parts), session_(session) {}

  // The optimizer's work beside the next step, unless it is left out.
  bool overlaps() const {
    const std::vector<std::string>& without = setup_.setting.without;
    return std::find(without.begin(), without.end(), kWithoutOverlap) == without.end();
  }

  absl::Status DrawSteps(uint64_t seed) {
    const int64_t row_tokens = setup_.step.row_tokens;
    const BatchShape shape{.tokens = setup_.step.rows * row_tokens,
                           .sequence_length = row_tokens,
                           .micro_batch_tokens = setup_.placement.micro_batch_rows * row_tokens};
    for (int i = 0; i < kDifferentSteps; ++i) {
      MT_ASSIGN_OR_RETURN(StepBatch step, RandomStep(shape, setup_.config.vocab_size,
                                                     seed + static_cast<uint64_t>(i)));
      steps_.push_back(std::move(step));
    }
    return absl::OkStatus();
  }

  struct Timed {
    int64_t steps = 0;
    absl::Duration elapsed;
    absl::Duration between;  // of the first step's result and the last one's
  };

  // From an idle pipeline to an idle one: `count` steps, or those that end before `end`, of the
  // clock, as far as their mean tells; at least those that are on their way together.
  absl::StatusOr<Timed> Run(int64_t count, absl::Duration end = absl::InfiniteDuration()) {
    const absl::Duration start = parts_.clock.MonotonicNow();
    const int64_t first = next_step_;
    const int on_their_way = overlaps() ? kStepsOnTheirWay : 1;
    absl::Duration first_result;
    absl::Duration now;
    for (int64_t finished = 0; finished < count; ++finished) {
      MT_RETURN_IF_ERROR(SubmitUpTo(first + std::min(count, finished + on_their_way)));
      MT_RETURN_IF_ERROR(Finish());
      now = parts_.clock.MonotonicNow();
      first_result = finished == 0 ? now : first_result;
      const int64_t submitted = next_step_ - first;
      const absl::Duration mean = (now - start) / (finished + 1);
      if (start + mean * (submitted + 1) > end) {
        count = submitted;
      }
    }
    MT_RETURN_IF_ERROR(session_.pipeline().WaitForUpdates());
    return Timed{.steps = count,
                 .elapsed = parts_.clock.MonotonicNow() - start,
                 .between = now - first_result};
  }

  double last_loss() const { return last_loss_; }

 private:
  absl::Status SubmitUpTo(int64_t end) {
    while (next_step_ < end) {
      MT_RETURN_IF_ERROR(Submit());
    }
    return absl::OkStatus();
  }

  // The oldest step's result; where nothing overlaps, its updates too.
  absl::Status Finish() {
    MT_ASSIGN_OR_RETURN(const StepResult result, session_.pipeline().WaitStep());
    if (!result.finite) {
      return absl::InternalError("a step of random weights was not finite");
    }
    last_loss_ = result.loss;
    return overlaps() ? absl::OkStatus() : session_.pipeline().WaitForUpdates();
  }

  absl::Status Submit() {
    const StepBatch& step = steps_[next_step_++ % kDifferentSteps];
    StepInput input{.loss_token_count = step.loss_token_count,
                    .optimizer = {.learning_rate = 1e-5},
                    .max_gradient_norm = 1.0};
    for (const OwnedMicroBatch& micro_batch : step.micro_batches) {
      input.micro_batches.push_back(micro_batch.View());
    }
    return session_.pipeline().SubmitStep(std::move(input));
  }

  const BenchmarkSetup& setup_;
  const BenchmarkParts& parts_;
  ModelSession& session_;
  std::vector<StepBatch> steps_;
  int64_t next_step_ = 0;
  double last_loss_ = 0;
};

using AllFigures = std::array<StreamFigures, kStreamCount>;

AllFigures Growth(const AllFigures& before, const AllFigures& after) {
  AllFigures growth = after;
  for (size_t i = 0; i < growth.size(); ++i) {
    growth[i].busy -= before[i].busy;
    growth[i].wall -= before[i].wall;
    growth[i].operation_count -= before[i].operation_count;
    for (size_t reason = 0; reason < growth[i].waits.size(); ++reason) {
      growth[i].waits[reason] -= before[i].waits[reason];
    }
  }
  return growth;
}

void SetFlops(const BenchmarkSetup& setup, BenchmarkFigures& figures) {
  const std::vector<int64_t> documents(setup.step.rows, setup.step.row_tokens);
  figures.model_flops_per_step = ModelFlops(setup.config, documents);
  const PipelineOptions& options = setup.placement.pipeline;
  figures.hardware_flops_per_step = figures.model_flops_per_step;
  const double layers = static_cast<double>(setup.layout.layer_count());
  for (int unit = 1; unit <= setup.layout.layer_count(); ++unit) {
    const double share = options.kept_share(unit);
    figures.hardware_flops_per_step +=
        (share * RecomputeFlops(setup.config, options.keep_of(unit), documents) +
         (1 - share) * RecomputeFlops(setup.config, KeepLevel::kNothing, documents)) /
        layers;
  }
  // Boundaries within a group are computed once more, by the whole forward of its other layers.
  const double tokens = static_cast<double>(setup.step.rows * setup.step.row_tokens);
  const double head_flops =
      6.0 * static_cast<double>(setup.config.vocab_size * setup.config.hidden_size) * tokens;
  figures.hardware_flops_per_step += (figures.model_flops_per_step - head_flops) / 3 *
                                     (setup.layers_per_unit - 1) / setup.layers_per_unit;
}

absl::Status WriteFile(const std::string& path, std::ios::openmode mode, const std::string& text) {
  std::ofstream file(path, mode);
  file << text << std::flush;
  return file ? absl::OkStatus()
              : absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
}

absl::StatusOr<BenchmarkFigures::Traced> Trace(const BenchmarkFlags& flags, DeviceTracer& tracer,
                                               BenchmarkRun& run, std::ostream& text) {
  MT_RETURN_IF_ERROR(tracer.Start());
  MT_ASSIGN_OR_RETURN(const BenchmarkRun::Timed timed, run.Run(flags.profile_steps));
  MT_ASSIGN_OR_RETURN(const std::vector<DeviceActivity> activities, tracer.Stop());
  text << FormatTotals(TotalsByName(activities), absl::ToInt64Nanoseconds(timed.elapsed));
  if (!flags.timeline.empty()) {
    MT_RETURN_IF_ERROR(WriteFile(flags.timeline, std::ios::trunc, ToTraceJson(activities)));
  }
  return BenchmarkFigures::Traced{.kernels = SumKernels(activities), .elapsed = timed.elapsed};
}

absl::StatusOr<std::unique_ptr<ModelSession>> StartSession(const BenchmarkFlags& flags,
                                                           const BenchmarkSetup& setup,
                                                           const BenchmarkParts& parts,
                                                           int threads) {
  const PipelineOptions& options = setup.placement.pipeline;
  MT_ASSIGN_OR_RETURN(std::unique_ptr<ModelSession> session,
                      ModelSession::Create(
                          setup.config,
                          {.optimizer_threads = threads,
                           .templates = {.dtype = setup.compute.dtype,
                                         .attention = setup.compute.attention,
                                         .limits = {.tokens = options.max_micro_batch_tokens,
                                                    .document_tokens = setup.step.row_tokens,
                                                    .documents = setup.placement.micro_batch_rows}},
                           .host_gradients = HostGradients(options),
                           .fold_layers = setup.fold_layers,
                           .layers_per_unit = setup.layers_per_unit},
                          parts.backend, parts.clock));
  MT_RETURN_IF_ERROR(session->Populate(/*progress=*/{}).status());
  FillRandomWeights(session->layout(), flags.seed, session->pool(), session->store());
  MT_RETURN_IF_ERROR(session->Pin(options, /*progress=*/{}).status());
  MT_RETURN_IF_ERROR(session->StartPipeline(options, /*progress=*/{}));
  return session;
}

// What the system did not pin goes through slabs, which costs speed.
void TellRefusals(ModelSession& session, std::ostream& text) {
  const absl::Status& store = session.store().pin_refusal();
  const StepPipeline::HostActivations host = session.pipeline().host_activations();
  if (!store.ok()) {
    text << "the host store is not all pinned: " << store.message() << "\n";
  }
  if (!host.refusal.ok()) {
    text << host.pinned_bytes << " of " << host.size_bytes
         << " bytes for activations on the host are pinned: " << host.refusal.message() << "\n";
  }
}

// The timed steps end at `end` of the clock.
absl::StatusOr<BenchmarkFigures> Measure(const BenchmarkFlags& flags, const BenchmarkSetup& setup,
                                         const BenchmarkParts& parts, absl::Duration end,
                                         ModelSession& session, std::ostream& text) {
  BenchmarkRun run(setup, parts, session);
  MT_RETURN_IF_ERROR(run.DrawSteps(flags.seed));
  MT_RETURN_IF_ERROR(run.Run(flags.warm_up).status());
  BenchmarkFigures figures{.predicted = setup.placement.predicted,
                           .planned_device_bytes = session.pipeline().device_bytes(),
                           .planned_host_bytes = setup.planned_host_bytes + kOwnHostBytes};
  const AllFigures before = session.pipeline().Figures();
  MT_ASSIGN_OR_RETURN(const BenchmarkRun::Timed timed, run.Run(flags.steps, end));
  figures.steps = timed.steps;
  figures.elapsed = timed.elapsed;
  if (timed.steps > 1) {
    figures.steady_step = timed.between / (timed.steps - 1);
  }
  figures.streams = Growth(before, session.pipeline().Figures());
  SetFlops(setup, figures);
  if (flags.profile_steps > 0) {
    MT_ASSIGN_OR_RETURN(figures.traced, Trace(flags, *parts.tracer, run, text));
  }
  figures.loss = run.last_loss();
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory device, parts.backend.ReadDeviceMemory());
  figures.peak_device_bytes = device.total_bytes - device.free_bytes;  // nothing is freed in steps
  MT_ASSIGN_OR_RETURN(const ProcessMemory process, ReadProcessMemory(""));
  figures.peak_host_bytes = process.peak_resident_bytes;
  figures.uses_slabs = session.pipeline().uses_slabs();
  return figures;
}

}  // namespace

absl::Status RunBenchmark(const BenchmarkFlags& flags, const BenchmarkParts& parts,
                          std::ostream& text) {
  if (flags.profile_steps > 0 && parts.tracer == nullptr) {
    return absl::InvalidArgumentError("--profile-steps: this backend cannot be traced");
  }
  if (!flags.output.empty()) {  // before hours of work, rather than after them
    MT_RETURN_IF_ERROR(WriteFile(flags.output, std::ios::app, ""));
  }
  const absl::Duration end =
      flags.time_limit_seconds > 0
          ? parts.clock.MonotonicNow() + absl::Seconds(flags.time_limit_seconds)
          : absl::InfiniteDuration();
  MT_ASSIGN_OR_RETURN(const BenchmarkMachine machine, MachineOf(flags, parts));
  MT_ASSIGN_OR_RETURN(BenchmarkSetup setup, SetUpBenchmark(flags, machine));
  setup.setting.backend = BackendName(parts.backend.kind());
  setup.setting.machine =
      absl::StrCat(parts.backend.DeviceName(), "; host with ", AllowedProcessors(), " processors");
  MT_ASSIGN_OR_RETURN(const ProcessMemory before_session, ReadProcessMemory(""));
  // Until what came of it is written: giving much memory back takes long, and may be cut short.
  MT_ASSIGN_OR_RETURN(const auto session, StartSession(flags, setup, parts, ThreadsOf(flags)));
  TellRefusals(*session, text);
  MT_ASSIGN_OR_RETURN(BenchmarkFigures figures, Measure(flags, setup, parts, end, *session, text));
  figures.planned_host_bytes += before_session.resident_bytes;
  text << ToText(setup.setting, figures) << std::flush;
  if (flags.output.empty()) {
    return absl::OkStatus();
  }
  return WriteFile(flags.output, std::ios::app, ToJsonLine(setup.setting, figures) + "\n");
}

}  // namespace megatrain
