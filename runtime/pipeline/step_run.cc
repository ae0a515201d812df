#include "runtime/pipeline/step_run.h"

#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/round_up.h"
#include "runtime/base/status_macros.h"
#include "runtime/optimizer/update_unit.h"
#include "runtime/pipeline/device_update.h"
#include "runtime/pipeline/step_verdict.h"

namespace megatrain {
namespace {

constexpr uint8_t kPoison = 0xff;  // a NaN in fp32 and in bf16

int64_t RoundUpTokens(int64_t tokens) { return RoundUp(tokens, kActivationAlignmentTokens); }

}  // namespace

StepRun::StepRun(PipelineState& state, StepInput input, bool forward_only,
                 std::unique_ptr<Event> result_known)
    : state_(state),
      input_(std::move(input)),
      forward_only_(forward_only),
      result_known_(std::move(result_known)) {
  const bool layer_major = state_.options.order == MicroBatchOrder::kLayerMajor;
  int64_t start = 0;
  int slot = 0;
  for (MicroBatch& batch : input_.micro_batches) {
    activation_starts_.push_back(start);
    batch.device_tables = At(state_.map.batch_tables[slot]);
    if (layer_major) {
      start += RoundUpTokens(static_cast<int64_t>(batch.tokens.size()));
      ++slot;
    }
  }
  MT_CHECK(start <= state_.map.activation_tokens);
}

absl::Status StepRun::Run(const Operation& operation, Launcher& launcher) {
  return state_.WithSlabs(operation.stream, launcher, [this, &operation](Launcher& copying) {
    return RunThere(operation, copying);
  });
}

absl::Status StepRun::RunThere(const Operation& operation, Launcher& launcher) {
  if (operation.clears_gradient && !Overwrites(operation)) {
    ClearGradients(operation, launcher);
  }
  MT_RETURN_IF_ERROR(Dispatch(operation, launcher));
  if (state_.options.poisons_freed_slots) {
    PoisonFreedSlots(operation, launcher);
  }
  return absl::OkStatus();
}

absl::Status StepRun::Dispatch(const Operation& operation, Launcher& launcher) {
  switch (operation.kind) {
    case OperationKind::kLoadWeights:
      return LoadWeights(operation, launcher);
    case OperationKind::kStashActivations:
    case OperationKind::kFetchActivations:
      CopyActivations(operation, launcher);
      break;
    case OperationKind::kEmbedForward:
      return Embed(operation, launcher);
    case OperationKind::kLayerForward:
      return Forward(operation, launcher);
    case OperationKind::kHead:
    case OperationKind::kHeadLoss:
      return Head(operation, launcher);
    case OperationKind::kLayerBackward:
      return LayerBackward(operation, launcher);
    case OperationKind::kEmbedBackward:
      return EmbedBackward(operation, launcher);
    case OperationKind::kFinalizeGradients:
      return FinalizeGradients(operation, launcher);
    case OperationKind::kDownloadGradients:
      DownloadGradients(operation, launcher);
      break;
    case OperationKind::kDownloadResults:
      launcher.CopyToHost(state_.host_results, Results(), state_.results_layout.size_bytes());
      break;
    case OperationKind::kNorm:
      TakeResults();
      break;
    case OperationKind::kUpdate:
    case OperationKind::kUpdateOnDevice:
    case OperationKind::kLoadState:
    case OperationKind::kUpdateChunk:
    case OperationKind::kStoreState:
      return Update(operation, launcher);
  }
  return absl::OkStatus();
}

absl::Status StepRun::LoadWeights(const Operation& operation, Launcher& launcher) {
  const int unit = operation.unit;
  const int64_t count = state_.layout.units[unit].element_count;
  std::byte* slot = At(state_.map.weight_slots[operation.weight_slot]);
  const HostStore::Access access = state_.store.BeginAccess(unit);
  if (state_.options.compute_dtype == ComputeDtype::kFloat32) {
    return state_.math.LoadFloats(state_.store.hi(unit), state_.store.lo(unit),
                                  reinterpret_cast<float*>(slot), At(state_.map.load_staging),
                                  count, launcher);
  }
  launcher.CopyToDevice(slot, state_.store.hi(unit), count * SizeBytes(ComputeDtype::kBfloat16));
  return absl::OkStatus();
}

// What a layer leaves of a micro-batch, to its place on the host or back from there.
void StepRun::CopyActivations(const Operation& operation, Launcher& launcher) {
  const int unit = operation.unit;
  const int slot = operation.activation_slot;
  const bool leaves = operation.kind == OperationKind::kStashActivations;
  const auto copy = [&](std::byte* device, std::byte* host, int64_t size_bytes) {
    if (leaves) {
      launcher.CopyToHost(host, device, size_bytes);
    } else {
      launcher.CopyToDevice(device, host, size_bytes);
    }
  };
  const PinnedArena& host = *state_.host_activations;
  const int host_unit = state_.options.stash_unit(unit);
  if (state_.options.stashes_boundary(unit)) {
    copy(leaves ? Boundary(unit - 1, slot) : At(state_.map.stash_slots[operation.stash_slot]),
         host.data(HostBoundaryPart(host_unit)) + ActivationOffsetBytes(slot),
         BoundaryBytes(operation));
  }
  if (state_.options.kept_place(unit, operation.micro_batch) == KeptPlace::kHost) {
    const int64_t tokens = RoundUpTokens(micro_batch_tokens(operation));
    const int piece = state_.options.CountKept(KeptPlace::kHost, operation.micro_batch);
    copy(StashedKept(operation.stash_slot), host.data(HostKeptPart(host_unit), piece),
         tokens * state_.options.kept_bytes_of(unit));
  }
}

absl::Status StepRun::Embed(const Operation& operation, Launcher& launcher) {
  const MicroBatch& batch = Batch(operation);
  void* tables = At(state_.map.batch_tables[operation.activation_slot]);
  std::byte* output = Boundary(0, operation.activation_slot);
  MT_RETURN_IF_ERROR(state_.templates.BindBatch(batch, tables, WorkspaceOf(launcher)));
  MT_RETURN_IF_ERROR(
      state_.templates.EmbedForward(Weights(operation), batch, output, WorkspaceOf(launcher)));
  if (operation.micro_batch == 0) {
    ClearMarks(launcher);
  }
  return MarkOutput(operation, output, launcher);
}

absl::Status StepRun::Forward(const Operation& operation, Launcher& launcher) {
  std::byte* output = Boundary(operation.unit, operation.activation_slot);
  ModelTemplates::LayerArguments arguments = LayerArguments(operation);
  if (IsMarkedByReader(operation.unit - 1)) {
    arguments.input_mark =
        state_.results_layout.mark(Results(), operation.unit - 1, operation.micro_batch);
  }
  MT_RETURN_IF_ERROR(
      state_.templates.LayerForward(arguments, Batch(operation), output, WorkspaceOf(launcher)));
  return MarkOutput(operation, output, launcher);
}

absl::Status StepRun::Head(const Operation& operation, Launcher& launcher) {
  const MicroBatch& batch = Batch(operation);
  const ModelTemplates::HeadInput input = {
      .head_weights = Weights(operation),
      .matrix = HeadMatrix(operation),
      .hidden = Boundary(operation.unit - 1, operation.activation_slot),
      .result = state_.results_layout.head(Results(), operation.micro_batch)};
  if (operation.kind == OperationKind::kHeadLoss) {
    return state_.templates.HeadLoss(input, batch, WorkspaceOf(launcher));
  }
  const ModelTemplates::HeadGradients gradients = {
      .head = Gradients(operation.gradient_slot),
      .matrix = HeadMatrixGradient(operation),
      .hidden = HiddenGradient(operation.activation_slot),
      .loss_scale = 1.0 / static_cast<double>(input_.loss_token_count),
      .overwrites = Overwrites(operation)};
  return state_.templates.Head(input, gradients, batch, WorkspaceOf(launcher));
}

absl::Status StepRun::LayerBackward(const Operation& operation, Launcher& launcher) {
  return state_.templates.LayerBackward(LayerArguments(operation), Batch(operation),
                                        HiddenGradient(operation.activation_slot),
                                        Gradients(operation.gradient_slot), WorkspaceOf(launcher));
}

absl::Status StepRun::EmbedBackward(const Operation& operation, Launcher& launcher) {
  const std::byte* hidden_gradient = HiddenGradient(operation.activation_slot);
  MT_RETURN_IF_ERROR(Mark(state_.layout.head_unit(), operation, hidden_gradient, launcher));
  return state_.templates.EmbedBackward(Batch(operation), hidden_gradient,
                                        Gradients(operation.gradient_slot), WorkspaceOf(launcher));
}

absl::Status StepRun::FinalizeGradients(const Operation& operation, Launcher& launcher) {
  const UnitLayout& unit = state_.layout.units[operation.unit];
  float* gradients = Gradients(operation.gradient_slot);
  if (state_.layout.tied && operation.unit == 0) {
    const TensorLayout& table = *unit.Find(TensorRole::kTokenTable);
    MT_RETURN_IF_ERROR(state_.math.AddTo(gradients + table.offset_elements, TiedMatrixGradient(),
                                         table.element_count, launcher));
  }
  std::vector<ValueRange> tensors;
  tensors.reserve(unit.tensors.size());
  for (const TensorLayout& tensor : unit.tensors) {
    tensors.push_back({.offset = tensor.offset_elements, .count = tensor.element_count});
  }
  MT_RETURN_IF_ERROR(state_.math.SumsOfSquares(
      gradients, tensors, state_.results_layout.squares(Results(), operation.unit),
      At(state_.map.sum_scratch), launcher));
  const bool rounds = state_.store.gradient_bytes() == SizeBytes(ComputeDtype::kBfloat16);
  if (state_.options.keeps_gradient(operation.unit)) {
    return state_.math.CopyGradient(
        {.values = gradients,
         .copy = At(state_.map.states[operation.unit].gradient),
         .form = rounds ? GradientForm::kBfloat16 : GradientForm::kFloat32,
         .count = unit.element_count},
        launcher);
  }
  return rounds && state_.options.gradient_crosses(operation.unit)
             ? state_.math.RoundToBfloat16InPlace(gradients, unit.element_count, launcher)
             : absl::OkStatus();
}

void StepRun::DownloadGradients(const Operation& operation, Launcher& launcher) {
  const int unit = operation.unit;
  const HostStore::Access access = state_.store.BeginAccess(unit);
  launcher.CopyToHost(state_.store.gradient(unit), Gradients(operation.gradient_slot),
                      state_.layout.units[unit].element_count * state_.store.gradient_bytes());
  launcher.FinishCopies();
}

void StepRun::TakeResults() {
  for (size_t m = 0; m < input_.micro_batches.size(); ++m) {
    const auto micro_batch = static_cast<int>(m);
    losses_.push_back(state_.results_layout.head(state_.host_results, micro_batch)->loss_sum);
  }
  if (forward_only_) {
    return;
  }
  result_ = JudgeStep(state_.layout, input_, state_.results_layout, state_.host_results);
  state_.update_count += result_.finite ? 1 : 0;
}

AdamWStep StepRun::OptimizerStep() const {
  AdamWStep step = input_.optimizer;
  step.step = state_.update_count;
  step.gradient_scale = result_.clip_coefficient;
  return step;
}

// Reads what the optimizer stream knows since its norm, for which all of this waited; the next
// step's norm waits for that step's forward, and so for this step's updates.
absl::Status StepRun::Update(const Operation& operation, Launcher& launcher) {
  if (!result_.finite) {
    return absl::OkStatus();
  }
  switch (operation.kind) {
    case OperationKind::kUpdateOnDevice:
      return UpdateOnDevice(state_, operation, OptimizerStep(), launcher);
    case OperationKind::kLoadState:
      LoadState(state_, operation, launcher);
      break;
    case OperationKind::kUpdateChunk:
      return UpdateChunk(state_, operation, OptimizerStep(), launcher);
    case OperationKind::kStoreState:
      StoreState(state_, operation, launcher);
      break;
    default:
      UpdateUnit(state_.layout, operation.unit, OptimizerStep(), state_.store, state_.pool);
  }
  return absl::OkStatus();
}

void StepRun::ClearGradients(const Operation& operation, Launcher& launcher) {
  const int64_t count = state_.layout.units[operation.unit].element_count;
  launcher.Fill(Gradients(operation.gradient_slot), 0, count * static_cast<int64_t>(sizeof(float)));
  if (state_.layout.tied && operation.unit == state_.layout.head_unit()) {
    launcher.Fill(TiedMatrixGradient(), 0, state_.map.tied_matrix_gradient.size_bytes);
  }
}

// Whether the templates write what others would clear.
bool StepRun::Overwrites(const Operation& operation) const {
  return operation.clears_gradient && operation.kind != OperationKind::kEmbedBackward &&
         state_.templates.writes_first_gradients();
}

void StepRun::PoisonFreedSlots(const Operation& operation, Launcher& launcher) {
  for (const EventKey& event : operation.records) {
    if (event.kind == EventKind::kSlotFree) {
      const DeviceRegion& slot = state_.map.weight_slots[event.index];
      launcher.Fill(At(slot), kPoison, slot.size_bytes);
    } else if (event.kind == EventKind::kStashFree) {
      const DeviceRegion& slot = state_.map.stash_slots[event.index];
      launcher.Fill(At(slot), kPoison, slot.size_bytes);
    } else if (event.kind == EventKind::kBoundaryFree) {
      launcher.Fill(Boundary(operation.unit - 1, operation.activation_slot), kPoison,
                    BoundaryBytes(operation));
    }
  }
}

// Whether the layer that reads a unit's output looks for rows of it that are not finite.
bool StepRun::IsMarkedByReader(int unit) const {
  return !forward_only_ && unit + 1 < state_.layout.head_unit() && state_.templates.marks_inputs();
}

// Readers note what they find and nothing else: before any mark of this step, and after the last
// one's went to the host.
void StepRun::ClearMarks(Launcher& launcher) {
  if (IsMarkedByReader(0)) {
    launcher.Fill(state_.results_layout.mark(Results(), 0, 0), 0xff,
                  state_.results_layout.marks_bytes());
  }
}

absl::Status StepRun::MarkOutput(const Operation& operation, const void* output,
                                 Launcher& launcher) {
  return forward_only_ || IsMarkedByReader(operation.unit)
             ? absl::OkStatus()
             : Mark(operation.unit, operation, output, launcher);
}

// Notes for JudgeStep where hidden states, or their gradient, are not finite.
absl::Status StepRun::Mark(int unit, const Operation& operation, const void* hidden,
                           Launcher& launcher) {
  return state_.math.FindNonFiniteRow(
      {.values = hidden,
       .element_bytes = static_cast<int>(SizeBytes(state_.options.compute_dtype)),
       .rows = micro_batch_tokens(operation),
       .width = hidden_size()},
      state_.results_layout.mark(Results(), unit, operation.micro_batch), launcher);
}

std::byte* StepRun::Boundary(int unit, int activation_slot) {
  return At(state_.map.boundaries[unit]) + ActivationOffsetBytes(activation_slot);
}

std::byte* StepRun::HiddenGradient(int activation_slot) {
  return At(state_.map.hidden_gradients) + ActivationOffsetBytes(activation_slot);
}

ModelTemplates::LayerArguments StepRun::LayerArguments(const Operation& operation) {
  const KeptPlace place = state_.options.kept_place(operation.unit, operation.micro_batch);
  const bool keeps = !forward_only_ && place != KeptPlace::kNowhere;
  return {.unit = operation.unit,
          .weights = Weights(operation),
          .input = LayerInput(operation),
          .kept = {.level = keeps ? state_.options.keep_of(operation.unit) : KeepLevel::kNothing,
                   .data = keeps ? KeptData(operation) : nullptr},
          .overwrites_gradients = Overwrites(operation)};
}

// Backward finds a boundary that went to the host in its stash slot.
const void* StepRun::LayerInput(const Operation& operation) {
  const bool came_back = operation.kind == OperationKind::kLayerBackward &&
                         state_.options.stashes_boundary(operation.unit);
  return came_back ? At(state_.map.stash_slots[operation.stash_slot])
                   : Boundary(operation.unit - 1, operation.activation_slot);
}

// Forward writes there, and backward reads.
std::byte* StepRun::KeptData(const Operation& operation) {
  const int unit = operation.unit;
  return state_.options.kept_place(unit, operation.micro_batch) == KeptPlace::kHost
             ? StashedKept(operation.stash_slot)
             : At(state_.map.kept[unit]) + KeptOffsetBytes(operation);
}

std::byte* StepRun::StashedKept(int stash_slot) {
  return At(state_.map.stash_slots[stash_slot]) + state_.map.stash_sizes.boundary_bytes;
}

// Where what a layer keeps of a micro-batch begins in its part of the device.
int64_t StepRun::KeptOffsetBytes(const Operation& operation) const {
  const PipelineOptions& options = state_.options;
  const int unit = operation.unit;
  const int64_t token = options.kept_by_place(unit)
                            ? state_.map.micro_batch_tokens *
                                  options.CountKept(KeptPlace::kDevice, operation.micro_batch)
                            : activation_starts_[operation.activation_slot];
  return token * options.kept_bytes_of(unit);
}

int64_t StepRun::BoundaryBytes(const Operation& operation) const {
  return micro_batch_tokens(operation) * hidden_size() * SizeBytes(state_.options.compute_dtype);
}

int64_t StepRun::ActivationOffsetBytes(int activation_slot) const {
  return activation_starts_[activation_slot] * hidden_size() *
         SizeBytes(state_.options.compute_dtype);
}

const void* StepRun::HeadMatrix(const Operation& operation) {
  const std::byte* base =
      At(state_.map.weight_slots[state_.layout.tied ? kEmbeddingSlot : operation.weight_slot]);
  const TensorLayout& matrix = state_.layout.tied
                                   ? *state_.layout.units[0].Find(TensorRole::kTokenTable)
                                   : *state_.layout.units[operation.unit].Find(TensorRole::kHead);
  return base + matrix.offset_elements * SizeBytes(state_.options.compute_dtype);
}

float* StepRun::HeadMatrixGradient(const Operation& operation) {
  if (state_.layout.tied) {
    return TiedMatrixGradient();
  }
  return Gradients(operation.gradient_slot) +
         state_.layout.units[operation.unit].Find(TensorRole::kHead)->offset_elements;
}

Workspace StepRun::WorkspaceOf(Launcher& launcher) {
  return {.data = At(state_.map.workspace),
          .size_bytes = state_.map.workspace.size_bytes,
          .stream = launcher.native_stream()};
}

int64_t StepRun::hidden_size() const {
  return state_.layout.units[0].Find(TensorRole::kTokenTable)->shape[1];
}

int64_t StepRun::micro_batch_tokens(const Operation& operation) const {
  return static_cast<int64_t>(Batch(operation).tokens.size());
}

}  // namespace megatrain
