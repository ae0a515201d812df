#include "runtime/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

const char* KindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kLoadWeights:
      return "load_weights";
    case OperationKind::kStashActivations:
      return "stash_activations";
    case OperationKind::kFetchActivations:
      return "fetch_activations";
    case OperationKind::kEmbedForward:
      return "embed_forward";
    case OperationKind::kLayerForward:
      return "layer_forward";
    case OperationKind::kHead:
      return "head";
    case OperationKind::kHeadLoss:
      return "head_loss";
    case OperationKind::kLayerBackward:
      return "layer_backward";
    case OperationKind::kEmbedBackward:
      return "embed_backward";
    case OperationKind::kFinalizeGradients:
      return "finalize_gradients";
    case OperationKind::kDownloadGradients:
      return "download_gradients";
    case OperationKind::kDownloadResults:
      return "download_results";
    case OperationKind::kNorm:
      return "norm";
    case OperationKind::kUpdate:
      return "update";
    case OperationKind::kUpdateOnDevice:
      return "update_on_device";
    case OperationKind::kLoadState:
      return "load_state";
    case OperationKind::kUpdateChunk:
      return "update_chunk";
    case OperationKind::kStoreState:
      return "store_state";
  }
  return "unknown";
}

const char* EventName(EventKind kind) {
  switch (kind) {
    case EventKind::kChunkUpdated:
      return "chunk_updated";
    case EventKind::kStagingFree:
      return "staging_free";
    case EventKind::kActivationsComputed:
      return "activations_computed";
    case EventKind::kActivationsOnHost:
      return "activations_on_host";
    case EventKind::kActivationsFetched:
      return "activations_fetched";
    case EventKind::kStashFree:
      return "stash_free";
    case EventKind::kBoundaryFree:
      return "boundary_free";
    case EventKind::kResultsReady:
      return "results_ready";
    case EventKind::kResultsOnHost:
      return "results_on_host";
    case EventKind::kResultsFree:
      return "results_free";
    case EventKind::kResultsTaken:
      return "results_taken";
    case EventKind::kNormKnown:
      return "norm_known";
    case EventKind::kResult:
      return "result";
    default:
      return nullptr;  // has the name of its wait reason
  }
}

bool HasIndex(EventKind kind) { return kind < EventKind::kResultsReady; }

}  // namespace

int ScheduleShape::streamed_layer_count() const {
  int count = 0;
  for (int unit = 1; unit <= layer_count; ++unit) {
    count += on_device(unit) ? 0 : 1;
  }
  return count;
}

int ScheduleShape::used_weight_slot_count() const {
  const int streamed = streamed_layer_count();
  return kFirstLayerSlot + std::min(weight_slot_count, streamed) + layer_count - streamed;
}

int ScheduleShape::used_gradient_slot_count() const {
  if (order == MicroBatchOrder::kMicroBatchMajor) {
    return kFirstLayerSlot + layer_count;
  }
  const int streamed = streamed_layer_count();
  return kFirstLayerSlot + std::min(gradient_slot_count, streamed) + layer_count - streamed;
}

bool ScheduleShape::ends_share_slots() const {
  return order == MicroBatchOrder::kLayerMajor && !tied && !on_device(0) && !on_device(head_unit());
}

int ScheduleShape::activation_slot_count() const {
  return order == MicroBatchOrder::kLayerMajor ? micro_batch_count : 1;
}

UnitSlots::UnitSlots(const ScheduleShape& shape) {
  const int streamed = shape.streamed_layer_count();
  const int shared_weights = std::min(shape.weight_slot_count, streamed);
  const int shared_gradients = std::min(shape.gradient_slot_count, streamed);
  const bool own_gradients = shape.order == MicroBatchOrder::kMicroBatchMajor;
  weights_.reserve(shape.unit_count());
  gradients_.reserve(shape.unit_count());
  weights_.push_back(kEmbeddingSlot);
  gradients_.push_back(kEmbeddingSlot);
  int streamed_before = 0;
  for (int unit = 1; unit <= shape.layer_count; ++unit) {
    const bool stays = shape.on_device(unit);
    const int stayed_before = unit - 1 - streamed_before;
    const int gradient = own_gradients ? unit - 1
                         : stays       ? shared_gradients + stayed_before
                                       : streamed_before % shared_gradients;
    weights_.push_back(stays ? kFirstLayerSlot + shared_weights + stayed_before : -1);
    gradients_.push_back(kFirstLayerSlot + gradient);
    streamed_before += stays ? 0 : 1;
  }
  weights_.push_back(shape.ends_share_slots() ? kEmbeddingSlot : kHeadSlot);
  gradients_.push_back(weights_.back());
}

WaitReason ReasonOf(EventKind kind) {
  switch (kind) {
    case EventKind::kWeightsReady:
      return WaitReason::kWeightsReady;
    case EventKind::kSlotFree:
    case EventKind::kStagingFree:
      return WaitReason::kSlotFree;
    case EventKind::kGradientReady:
      return WaitReason::kGradientReady;
    case EventKind::kSlabFree:
      return WaitReason::kSlabFree;
    case EventKind::kUnitUpdated:
    case EventKind::kChunkUpdated:
      return WaitReason::kUnitUpdated;
    case EventKind::kStateReady:
      return WaitReason::kStateReady;
    case EventKind::kActivationsComputed:
    case EventKind::kActivationsOnHost:
    case EventKind::kActivationsFetched:
      return WaitReason::kActivations;
    case EventKind::kStashFree:
    case EventKind::kBoundaryFree:
      return WaitReason::kStashFree;
    case EventKind::kResultsReady:
      return WaitReason::kGradientReady;
    case EventKind::kResultsOnHost:
    case EventKind::kNormKnown:
      return WaitReason::kNorm;
    case EventKind::kResultsFree:
    case EventKind::kResultsTaken:
    case EventKind::kResult:
      return WaitReason::kNoWork;
  }
  return WaitReason::kNoWork;
}

bool CrossesSteps(EventKind kind) {
  return kind == EventKind::kSlotFree || kind == EventKind::kUnitUpdated ||
         kind == EventKind::kResultsFree || kind == EventKind::kResultsTaken;
}

std::string Describe(const Operation& operation) {
  std::string text = KindName(operation.kind);
  if (operation.unit >= 0) {
    absl::StrAppend(&text, " unit ", operation.unit);
  }
  if (operation.micro_batch >= 0) {
    absl::StrAppend(&text, " micro-batch ", operation.micro_batch);
  }
  if (operation.chunk >= 0) {
    absl::StrAppend(&text, " chunk ", operation.chunk);
  }
  return text;
}

std::string Describe(EventKey event) {
  const char* name = EventName(event.kind);
  const std::string text =
      name != nullptr ? std::string(name) : std::string(WaitReasonName(ReasonOf(event.kind)));
  return HasIndex(event.kind) ? absl::StrCat(text, "[", event.index, "]") : text;
}

}  // namespace megatrain
