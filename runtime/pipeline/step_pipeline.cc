#include "runtime/pipeline/step_pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/device_update.h"
#include "runtime/pipeline/slab_pool.h"

namespace megatrain {
namespace {

absl::Status CheckOptions(const PipelineOptions& options) {
  const auto require = [](bool holds, const char* name) {
    return holds ? absl::OkStatus()
                 : absl::InvalidArgumentError(absl::StrCat("pipeline: ", name, " is too small"));
  };
  MT_RETURN_IF_ERROR(require(options.weight_slot_count >= 1, "weight_slot_count"));
  MT_RETURN_IF_ERROR(require(options.gradient_slot_count >= 1, "gradient_slot_count"));
  MT_RETURN_IF_ERROR(require(options.stash_slot_count >= 1, "stash_slot_count"));
  MT_RETURN_IF_ERROR(require(options.fold_stash_layers >= 0, "fold_stash_layers"));
  MT_RETURN_IF_ERROR(require(options.staging_slot_count >= 1, "staging_slot_count"));
  MT_RETURN_IF_ERROR(require(options.state_chunk_elements >= 1, "state_chunk_elements"));
  if (options.state_chunk_elements % kTensorAlignmentElements != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline: state_chunk_elements is ", options.state_chunk_elements,
                     ", not a multiple of ", kTensorAlignmentElements));
  }
  MT_RETURN_IF_ERROR(require(options.slab_bytes >= 1, "slab_bytes"));
  MT_RETURN_IF_ERROR(require(options.max_micro_batches >= 1, "max_micro_batches"));
  MT_RETURN_IF_ERROR(
      require(options.kept_places.empty() ||
                  static_cast<int>(options.kept_places.size()) >= options.max_micro_batches,
              "kept_places"));
  MT_RETURN_IF_ERROR(require(options.max_micro_batch_tokens >= 1, "max_micro_batch_tokens"));
  MT_RETURN_IF_ERROR(
      require(options.max_step_tokens >= options.max_micro_batch_tokens, "max_step_tokens"));
  return require(options.workspace_bytes >= 0, "workspace_bytes");
}

absl::Status CheckTemplates(const ModelTemplates& templates, const PipelineOptions& options) {
  bool fits = templates.BatchTableBytes() <= options.batch_table_bytes;
  for (const KeepLevel level : options.keep) {
    fits = fits &&
           templates.KeptTokenBytes(level) <= options.kept_token_bytes[static_cast<int>(level)];
  }
  return fits ? absl::OkStatus()
              : absl::InvalidArgumentError(
                    "pipeline: the plan has too little memory for what the templates keep");
}

absl::Status CheckStore(const HostStore& store, const PipelineOptions& options) {
  for (int unit = 0; unit < store.unit_count(); ++unit) {
    if (options.gradient_crosses(unit) && !store.has_gradient(unit)) {
      return absl::InvalidArgumentError(
          absl::StrCat("pipeline: the store has no memory for the gradient of unit ", unit));
    }
  }
  return absl::OkStatus();
}

int64_t TokenCount(const MicroBatch& batch) { return static_cast<int64_t>(batch.tokens.size()); }

}  // namespace

absl::StatusOr<std::unique_ptr<StepPipeline>> StepPipeline::Create(const Parts& parts,
                                                                   const ModelLayout& layout,
                                                                   const PipelineOptions& options) {
  MT_RETURN_IF_ERROR(CheckOptions(options));
  MT_CHECK(parts.store.unit_count() == static_cast<int>(layout.units.size()));
  auto pipeline = std::unique_ptr<StepPipeline>(new StepPipeline(parts, layout, options));
  MT_RETURN_IF_ERROR(CheckTemplates(parts.templates, options));
  MT_RETURN_IF_ERROR(CheckStore(parts.store, options));
  MT_RETURN_IF_ERROR(pipeline->Allocate(parts.progress));
  pipeline->executor_.Enqueue(
      StreamKind::kHostToDevice, "states to the device",
      [&pipeline = *pipeline](Launcher& launcher) { return pipeline.BringStates(launcher); });
  MT_RETURN_IF_ERROR(parts.device.Drain());
  return pipeline;
}

// The device's own comes last: pinned memory needs a little of it, which the arena would take.
absl::Status StepPipeline::Allocate(const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(host_results_, device_.AllocateHost(state_.results_layout.size_bytes()));
  state_.host_results = host_results_->data();
  MT_RETURN_IF_ERROR(AllocateSlabs());
  MT_RETURN_IF_ERROR(AllocateHostActivations(progress));
  MT_ASSIGN_OR_RETURN(arena_, device_.Allocate(state_.map.bytes.total()));
  state_.device = arena_->data();
  return absl::OkStatus();
}

absl::Status StepPipeline::AllocateHostActivations(const ByteProgress& progress) {
  if (!state_.map.host_parts.empty()) {
    PagePinner* const pinner = state_.options.pin == PinMode::kSlabs ? nullptr : pinner_;
    MT_ASSIGN_OR_RETURN(
        state_.host_activations,
        PinnedArena::Create(state_.map.host_parts, state_.pool.thread_count(), pinner, progress));
  }
  const absl::Status refusal = PinRefusal();
  return state_.options.pin == PinMode::kFull && !refusal.ok()
             ? absl::Status(refusal.code(),
                            absl::StrCat(std::string(refusal.message()),
                                         "; with placement.pin auto or slabs the job would go on"))
             : absl::OkStatus();
}

// Also where all that crosses in a step is pinned: what crosses between steps, when states come to
// the device and leave it for a checkpoint, need not be. Before anything else that may be refused,
// so that slabs are there when it is. Without them the driver finds a way of its own, a slower one:
// that ends no job which leaves the choice open.
absl::Status StepPipeline::AllocateSlabs() {
  const PinMode pin = state_.options.pin;
  if (pin != PinMode::kSlabs && pinner_ == nullptr) {
    return absl::OkStatus();
  }
  auto slabs = SlabPool::Create(device_, state_.layout, state_.options.slab_bytes,
                                state_.pool.thread_count());
  if (!slabs.ok()) {
    return pin == PinMode::kSlabs ? slabs.status() : absl::OkStatus();
  }
  state_.slabs = *std::move(slabs);
  return absl::OkStatus();
}

// Why not all that crosses in a step is pinned.
absl::Status StepPipeline::PinRefusal() const {
  absl::Status refusal = state_.store.pin_refusal();
  refusal.Update(host_activations().refusal);
  return refusal;
}

bool StepPipeline::uses_slabs() const {
  return state_.slabs != nullptr && (state_.options.pin == PinMode::kSlabs || !PinRefusal().ok());
}

int64_t StepPipeline::host_bytes() const {
  return PinnedArena::Bytes(state_.map.host_parts) +
         (state_.slabs != nullptr ? SlabPool::Bytes(state_.layout, state_.options.slab_bytes) : 0);
}

StepPipeline::HostActivations StepPipeline::host_activations() const {
  if (state_.host_activations == nullptr) {
    return {};
  }
  return {.size_bytes = PinnedArena::Bytes(state_.map.host_parts),
          .pinned_bytes = state_.host_activations->pinned_bytes(),
          .refusal = state_.host_activations->refusal()};
}

StepPipeline::StepPipeline(const Parts& parts, const ModelLayout& layout,
                           const PipelineOptions& options)
    : device_(parts.device),
      pinner_(parts.pinner),
      state_{.layout = layout,
             .store = parts.store,
             .templates = parts.templates,
             .math = parts.math,
             .pool = parts.pool,
             .options = options,
             .map = MapDeviceMemory(layout, options),
             .results_layout = ResultsLayout(layout, options.max_micro_batches)},
      executor_(parts.device) {}

StepPipeline::~StepPipeline() = default;

absl::Status StepPipeline::SubmitStep(StepInput input) {
  if (input.loss_token_count < 1) {
    return absl::InvalidArgumentError("a step needs at least one token with a loss");
  }
  MT_RETURN_IF_ERROR(PrepareMicroBatches(input.micro_batches));
  MT_ASSIGN_OR_RETURN(auto run, Issue(std::move(input), /*forward_only=*/false));
  waiting_.push_back(std::move(run));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> StepPipeline::WaitStep() {
  if (waiting_.empty()) {
    return absl::FailedPreconditionError("every submitted step has given its result");
  }
  MT_RETURN_IF_ERROR(device_.Await(waiting_.front()->result_known()));
  // A step's norm comes after the updates of the one before: its forward waited for them all.
  updating_ = std::move(waiting_.front());
  waiting_.pop_front();
  return updating_->result();
}

absl::StatusOr<double> StepPipeline::Evaluate(std::span<const MicroBatch> micro_batches) {
  double loss_sum = 0;
  while (!micro_batches.empty()) {
    const auto group = micro_batches.first(EvaluationGroupSize(micro_batches));
    MT_RETURN_IF_ERROR(PrepareMicroBatches(group));
    MT_ASSIGN_OR_RETURN(
        evaluation_, Issue({.micro_batches = {group.begin(), group.end()}}, /*forward_only=*/true));
    MT_RETURN_IF_ERROR(device_.Await(evaluation_->result_known()));
    for (const double loss : evaluation_->losses()) {
      loss_sum += loss;  // one by one: the groups leave no trace in the bits
    }
    micro_batches = micro_batches.subspan(group.size());
  }
  return loss_sum;
}

absl::Status StepPipeline::WaitForUpdates() { return device_.Drain(); }

absl::Status StepPipeline::Drain() {
  MT_RETURN_IF_ERROR(WaitForUpdates());
  executor_.Enqueue(StreamKind::kDeviceToHost, "states to the host",
                    [this](Launcher& launcher) { return FetchStates(launcher); });
  return device_.Drain();
}

absl::Status StepPipeline::BringStates(Launcher& launcher) {
  return state_.WithSlabs(StreamKind::kHostToDevice, launcher, [this](Launcher& copying) {
    absl::Status status;
    for (int unit = 0; status.ok() && unit <= state_.layout.head_unit(); ++unit) {
      if (state_.options.on_device(unit)) {
        status = BringState(state_, unit, copying);
      }
    }
    return status;
  });
}

absl::Status StepPipeline::FetchStates(Launcher& launcher) {
  return state_.WithSlabs(StreamKind::kDeviceToHost, launcher, [this](Launcher& copying) {
    for (int unit = 0; unit <= state_.layout.head_unit(); ++unit) {
      if (state_.options.on_device(unit)) {
        FetchState(state_, unit, copying);
      }
    }
    return absl::OkStatus();
  });
}

std::array<StreamFigures, kStreamCount> StepPipeline::Figures() const {
  std::array<StreamFigures, kStreamCount> figures;
  for (const StreamKind stream : kAllStreams) {
    figures[static_cast<int>(stream)] = executor_.Figures(stream);
  }
  return figures;
}

PipelineProgress StepPipeline::Progress() const {
  PipelineProgress progress;
  for (const StreamKind stream : kAllStreams) {
    progress[static_cast<int>(stream)] = executor_.Progress(stream);
  }
  return progress;
}

absl::Status StepPipeline::CheckMicroBatches(std::span<const MicroBatch> micro_batches) const {
  const PipelineOptions& options = state_.options;
  const int64_t count = static_cast<int64_t>(micro_batches.size());
  if (count < 1 || count > options.max_micro_batches) {
    return absl::InvalidArgumentError(absl::StrCat("a step of ", count, " micro-batches: 1 to ",
                                                   options.max_micro_batches, " are planned for"));
  }
  int64_t step_tokens = 0;
  for (const MicroBatch& batch : micro_batches) {
    const int64_t tokens = TokenCount(batch);
    if (tokens < 1 || tokens > options.max_micro_batch_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("a micro-batch of ", tokens, " tokens: 1 to ",
                                                     options.max_micro_batch_tokens,
                                                     " are planned for"));
    }
    step_tokens += tokens;
  }
  if (step_tokens > options.max_step_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("a step of ", step_tokens, " tokens: at most ",
                                                   options.max_step_tokens, " are planned for"));
  }
  return absl::OkStatus();
}

absl::Status StepPipeline::PrepareMicroBatches(std::span<const MicroBatch> micro_batches) {
  MT_RETURN_IF_ERROR(CheckMicroBatches(micro_batches));
  for (const MicroBatch& batch : micro_batches) {
    MT_RETURN_IF_ERROR(state_.templates.Prepare(batch));
  }
  return absl::OkStatus();
}

absl::StatusOr<const Schedule*> StepPipeline::ScheduleFor(int micro_batch_count,
                                                          bool forward_only) {
  const std::pair<int, bool> key = {micro_batch_count, forward_only};
  auto found = schedules_.find(key);
  if (found == schedules_.end()) {
    MT_ASSIGN_OR_RETURN(Schedule schedule,
                        BuildSchedule(MakeScheduleShape(state_.layout, state_.options,
                                                        micro_batch_count, forward_only)));
    found = schedules_.emplace(key, std::move(schedule)).first;
  }
  return &found->second;
}

absl::StatusOr<std::unique_ptr<StepRun>> StepPipeline::Issue(StepInput input, bool forward_only) {
  MT_ASSIGN_OR_RETURN(const Schedule* schedule,
                      ScheduleFor(static_cast<int>(input.micro_batches.size()), forward_only));
  auto run = std::make_unique<StepRun>(state_, std::move(input), forward_only, device_.MakeEvent());
  executor_.Issue(*schedule, *run, run->result_known());
  return run;
}

// The most micro-batches from the front that fit into one pass; at least one.
int StepPipeline::EvaluationGroupSize(std::span<const MicroBatch> micro_batches) const {
  int64_t tokens = TokenCount(micro_batches.front());
  int size = 1;
  while (size < std::min<int64_t>(state_.options.max_micro_batches,
                                  static_cast<int64_t>(micro_batches.size())) &&
         tokens + TokenCount(micro_batches[size]) <= state_.options.max_step_tokens) {
    tokens += TokenCount(micro_batches[size]);
    ++size;
  }
  return size;
}

}  // namespace megatrain
