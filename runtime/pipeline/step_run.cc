#include "runtime/pipeline/step_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/optimizer/update_unit.h"
#include "runtime/pipeline/gradient_math.h"

namespace megatrain {
namespace {

constexpr uint8_t kPoison = 0xff;  // a NaN in fp32 and in bf16

// Keeps the divisor off zero, as torch.nn.utils.clip_grad_norm_ does.
constexpr double kClipEpsilon = 1e-6;

// A gradient beyond this has no bf16.
constexpr double kLargestNorm = 3.3895313892515355e38;

int64_t RoundUpTokens(int64_t tokens) {
  return (tokens + kActivationAlignmentTokens - 1) / kActivationAlignmentTokens *
         kActivationAlignmentTokens;
}

int DocumentOf(const MicroBatch& batch, int64_t token) {
  const auto next =
      std::upper_bound(batch.document_offsets.begin(), batch.document_offsets.end(), token);
  return static_cast<int>(next - batch.document_offsets.begin()) - 1;
}

}  // namespace

StepRun::StepRun(PipelineState& state, StepInput input, std::unique_ptr<Event> result_known)
    : state_(state),
      input_(std::move(input)),
      result_known_(std::move(result_known)),
      losses_(input_.micro_batches.size(), 0.0) {
  int64_t start = 0;
  for (const MicroBatch& batch : input_.micro_batches) {
    activation_starts_.push_back(start);
    if (state_.options.order == MicroBatchOrder::kLayerMajor) {
      start += RoundUpTokens(static_cast<int64_t>(batch.tokens.size()));
    }
  }
  MT_CHECK(start <= state_.map.activation_tokens);
  for (const UnitLayout& unit : state_.layout.units) {
    squares_.emplace_back(unit.tensors.size(), 0.0);
  }
}

absl::Status StepRun::Run(const Operation& operation, Launcher& launcher) {
  if (operation.clears_gradient) {
    ClearGradients(operation, launcher);
  }
  MT_RETURN_IF_ERROR(Dispatch(operation, launcher));
  PoisonFreedSlots(operation, launcher);
  return absl::OkStatus();
}

absl::Status StepRun::Dispatch(const Operation& operation, Launcher& launcher) {
  switch (operation.kind) {
    case OperationKind::kLoadWeights:
      LoadWeights(operation, launcher);
      break;
    case OperationKind::kEmbedForward:
    case OperationKind::kLayerForward:
      return Forward(operation);
    case OperationKind::kHead:
      return Head(operation);
    case OperationKind::kHeadLoss:
      return HeadLoss(operation);
    case OperationKind::kLayerBackward:
    case OperationKind::kEmbedBackward:
      return Backward(operation);
    case OperationKind::kFinalizeGradients:
      FinalizeGradients(operation);
      break;
    case OperationKind::kDownloadGradients:
      DownloadGradients(operation, launcher);
      break;
    case OperationKind::kNorm:
      TakeNorm();
      break;
    case OperationKind::kUpdate:
      Update(operation);
      break;
  }
  return absl::OkStatus();
}

void StepRun::LoadWeights(const Operation& operation, Launcher& launcher) {
  const int unit = operation.unit;
  const int64_t count = state_.layout.units[unit].element_count;
  std::byte* slot = At(state_.map.weight_slots[operation.weight_slot]);
  const HostStore::Access access = state_.store.BeginAccess(unit);
  if (state_.options.compute_dtype == ComputeDtype::kBfloat16) {
    launcher.CopyToDevice(slot, state_.store.hi(unit), count * SizeBytes(ComputeDtype::kBfloat16));
  } else {
    JoinFloats(state_.store.hi(unit), state_.store.lo(unit),
               {reinterpret_cast<float*>(slot), static_cast<size_t>(count)});
  }
}

absl::Status StepRun::Forward(const Operation& operation) {
  const MicroBatch& batch = input_.micro_batches[operation.micro_batch];
  std::byte* output = Boundary(operation.unit, operation.activation_slot);
  if (operation.kind == OperationKind::kEmbedForward) {
    return state_.templates.EmbedForward(Weights(operation), batch, output, workspace());
  }
  return state_.templates.LayerForward(operation.unit, Weights(operation), batch,
                                       Boundary(operation.unit - 1, operation.activation_slot),
                                       output, workspace());
}

absl::Status StepRun::Head(const Operation& operation) {
  const ModelTemplates::HeadArguments arguments = {
      .head_weights = Weights(operation),
      .matrix = HeadMatrix(operation),
      .input = Boundary(operation.unit - 1, operation.activation_slot),
      .head_gradients = Gradients(operation.gradient_slot),
      .matrix_gradient = HeadMatrixGradient(operation),
      .hidden_gradient = HiddenGradient(operation.activation_slot),
      .loss_scale = 1.0 / static_cast<double>(input_.loss_token_count)};
  MT_ASSIGN_OR_RETURN(
      const HeadResult head,
      state_.templates.Head(arguments, input_.micro_batches[operation.micro_batch], workspace()));
  KeepLoss(operation, head);
  return absl::OkStatus();
}

absl::Status StepRun::HeadLoss(const Operation& operation) {
  MT_ASSIGN_OR_RETURN(
      const HeadResult head,
      state_.templates.HeadLoss(Weights(operation), HeadMatrix(operation),
                                Boundary(operation.unit - 1, operation.activation_slot),
                                input_.micro_batches[operation.micro_batch], workspace()));
  KeepLoss(operation, head);
  return absl::OkStatus();
}

void StepRun::KeepLoss(const Operation& operation, const HeadResult& head) {
  losses_[operation.micro_batch] = head.loss_sum;
  if (head.first_nonfinite >= 0) {
    non_finite_losses_.push_back(LocateLoss(operation, head.first_nonfinite));
  }
}

absl::Status StepRun::Backward(const Operation& operation) {
  const MicroBatch& batch = input_.micro_batches[operation.micro_batch];
  std::byte* hidden_gradient = HiddenGradient(operation.activation_slot);
  float* gradients = Gradients(operation.gradient_slot);
  if (operation.kind == OperationKind::kLayerBackward) {
    return state_.templates.LayerBackward(operation.unit, Weights(operation), batch,
                                          Boundary(operation.unit - 1, operation.activation_slot),
                                          hidden_gradient, gradients, workspace());
  }
  // Attention stays within a document, so what went wrong in a layer is still in its document.
  const int64_t count = static_cast<int64_t>(batch.tokens.size()) * hidden_size();
  const int64_t found = FirstNonFinite(hidden_gradient, state_.options.compute_dtype, count);
  if (found >= 0) {
    non_finite_gradients_.push_back({.micro_batch = operation.micro_batch,
                                     .document = DocumentOf(batch, found / hidden_size())});
  }
  return state_.templates.EmbedBackward(batch, hidden_gradient, gradients, workspace());
}

void StepRun::FinalizeGradients(const Operation& operation) {
  const UnitLayout& unit = state_.layout.units[operation.unit];
  float* gradients = Gradients(operation.gradient_slot);
  if (state_.layout.tied && operation.unit == 0) {
    const TensorLayout& table = *unit.Find(TensorRole::kTokenTable);
    const size_t count = static_cast<size_t>(table.element_count);
    AddTo({gradients + table.offset_elements, count}, {TiedMatrixGradient(), count});
  }
  for (size_t i = 0; i < unit.tensors.size(); ++i) {
    const TensorLayout& tensor = unit.tensors[i];
    Squares(operation.unit)[i] = SumOfSquares(
        {gradients + tensor.offset_elements, static_cast<size_t>(tensor.element_count)});
  }
  if (state_.store.gradient_bytes() == SizeBytes(ComputeDtype::kBfloat16)) {
    RoundToBfloat16InPlace({gradients, static_cast<size_t>(unit.element_count)});
  }
}

void StepRun::DownloadGradients(const Operation& operation, Launcher& launcher) {
  const int unit = operation.unit;
  std::vector<double>& squares = squares_[unit];
  launcher.CopyToHost(squares.data(), Squares(unit),
                      static_cast<int64_t>(squares.size() * sizeof(double)));
  const HostStore::Access access = state_.store.BeginAccess(unit);
  launcher.CopyToHost(state_.store.gradient(unit), Gradients(operation.gradient_slot),
                      state_.layout.units[unit].element_count * state_.store.gradient_bytes());
}

// Clips as torch.nn.utils.clip_grad_norm_: coefficient = min(1, max_norm / (norm + 1e-6)).
void StepRun::TakeNorm() {
  double sum = 0;
  for (const std::vector<double>& unit : squares_) {
    sum += std::accumulate(unit.begin(), unit.end(), 0.0);
  }
  const double loss_sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  result_.loss = loss_sum / static_cast<double>(input_.loss_token_count);
  result_.gradient_norm = std::sqrt(sum);
  const bool norm_is_finite = result_.gradient_norm <= kLargestNorm;  // false for a NaN
  result_.finite = norm_is_finite && std::isfinite(result_.loss);
  if (!result_.finite) {
    result_.non_finite = non_finite_losses_.empty() ? LocateGradient() : non_finite_losses_.front();
    return;
  }
  if (input_.max_gradient_norm > 0) {
    result_.clip_coefficient =
        std::min(1.0, input_.max_gradient_norm / (result_.gradient_norm + kClipEpsilon));
  }
  ++state_.update_count;
}

void StepRun::Update(const Operation& operation) {
  if (!result_.finite) {
    return;
  }
  AdamWStep step = input_.optimizer;
  step.step = state_.update_count;
  step.gradient_scale = result_.clip_coefficient;
  UpdateUnit(state_.layout, operation.unit, step, state_.store, state_.pool);
}

void StepRun::ClearGradients(const Operation& operation, Launcher& launcher) {
  const int64_t count = state_.layout.units[operation.unit].element_count;
  launcher.Fill(Gradients(operation.gradient_slot), 0, count * static_cast<int64_t>(sizeof(float)));
  if (state_.layout.tied && operation.unit == state_.layout.head_unit()) {
    launcher.Fill(TiedMatrixGradient(), 0, state_.map.tied_matrix_gradient.size_bytes);
  }
}

void StepRun::PoisonFreedSlots(const Operation& operation, Launcher& launcher) {
  for (const EventKey& event : operation.records) {
    if (event.kind == EventKind::kSlotFree) {
      const DeviceRegion& slot = state_.map.weight_slots[event.index];
      launcher.Fill(At(slot), kPoison, slot.size_bytes);
    }
  }
}

// The first unit whose output holds an infinity or NaN in the document of that loss, else the
// head: boundaries below are still there when the head runs.
NonFinite StepRun::LocateLoss(const Operation& operation, int loss_index) {
  const MicroBatch& batch = input_.micro_batches[operation.micro_batch];
  const int document = DocumentOf(batch, batch.loss_positions[loss_index]);
  const int64_t first = batch.document_offsets[document];
  const int64_t count = (batch.document_offsets[document + 1] - first) * hidden_size();
  int unit = 0;
  while (unit < operation.unit &&
         FirstNonFinite(Boundary(unit, operation.activation_slot) +
                            first * hidden_size() * SizeBytes(state_.options.compute_dtype),
                        state_.options.compute_dtype, count) < 0) {
    ++unit;
  }
  return {.unit = unit, .micro_batch = operation.micro_batch, .document = document};
}

// The first tensor, in the order of backward, whose gradient is not finite.
NonFinite StepRun::LocateGradient() const {
  NonFinite found = non_finite_gradients_.empty() ? NonFinite{} : non_finite_gradients_.front();
  for (int unit = state_.layout.head_unit(); unit >= 0; --unit) {
    for (size_t i = 0; i < squares_[unit].size(); ++i) {
      if (!std::isfinite(squares_[unit][i])) {
        found.unit = unit;
        found.tensor = state_.layout.units[unit].tensors[i].name;
        return found;
      }
    }
  }
  return found;
}

std::byte* StepRun::Boundary(int unit, int activation_slot) {
  return At(state_.map.boundaries[unit]) + ActivationOffsetBytes(activation_slot);
}

std::byte* StepRun::HiddenGradient(int activation_slot) {
  return At(state_.map.hidden_gradients) + ActivationOffsetBytes(activation_slot);
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

Workspace StepRun::workspace() {
  return {.data = At(state_.map.workspace), .size_bytes = state_.map.workspace.size_bytes};
}

int64_t StepRun::hidden_size() const {
  return state_.layout.units[0].Find(TensorRole::kTokenTable)->shape[1];
}

}  // namespace megatrain
