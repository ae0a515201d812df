#include "runtime/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

const char* KindName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kLoadWeights:
      return "load_weights";
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
    case OperationKind::kNorm:
      return "norm";
    case OperationKind::kUpdate:
      return "update";
  }
  return "unknown";
}

}  // namespace

int ScheduleShape::used_weight_slot_count() const {
  return kFirstLayerSlot + std::min(weight_slot_count, layer_count);
}

int ScheduleShape::used_gradient_slot_count() const {
  const bool rotate = order == MicroBatchOrder::kLayerMajor;
  return kFirstLayerSlot + (rotate ? std::min(gradient_slot_count, layer_count) : layer_count);
}

int ScheduleShape::activation_slot_count() const {
  return order == MicroBatchOrder::kLayerMajor ? micro_batch_count : 1;
}

WaitReason ReasonOf(EventKind kind) {
  switch (kind) {
    case EventKind::kWeightsReady:
      return WaitReason::kWeightsReady;
    case EventKind::kSlotFree:
      return WaitReason::kSlotFree;
    case EventKind::kGradientReady:
      return WaitReason::kGradientReady;
    case EventKind::kSlabFree:
      return WaitReason::kSlabFree;
    case EventKind::kUnitUpdated:
      return WaitReason::kUnitUpdated;
    case EventKind::kGradientsOnHost:
      return WaitReason::kNorm;
    case EventKind::kResult:
      return WaitReason::kNoWork;
  }
  return WaitReason::kNoWork;
}

bool CrossesSteps(EventKind kind) {
  return kind == EventKind::kSlotFree || kind == EventKind::kUnitUpdated;
}

std::string Describe(const Operation& operation) {
  std::string text = KindName(operation.kind);
  if (operation.unit >= 0) {
    absl::StrAppend(&text, " unit ", operation.unit);
  }
  if (operation.micro_batch >= 0) {
    absl::StrAppend(&text, " micro-batch ", operation.micro_batch);
  }
  return text;
}

std::string Describe(EventKey event) {
  if (event.kind == EventKind::kGradientsOnHost) {
    return "gradients_on_host";
  }
  if (event.kind == EventKind::kResult) {
    return "result";
  }
  return absl::StrCat(std::string(WaitReasonName(ReasonOf(event.kind))), "[", event.index, "]");
}

}  // namespace megatrain
