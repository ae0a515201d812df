#include "runtime/device/stream_figures.h"

namespace megatrain {

std::string_view StreamName(StreamKind stream) {
  switch (stream) {
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kHostToDevice:
      return "h2d";
    case StreamKind::kDeviceToHost:
      return "d2h";
    case StreamKind::kOptimizer:
      return "optimizer";
    case StreamKind::kDeviceUpdate:
      return "device_update";
    case StreamKind::kStateUp:
      return "state_h2d";
    case StreamKind::kStateDown:
      return "state_d2h";
    case StreamKind::kStateUpdate:
      return "state_update";
  }
  return "unknown";
}

std::string_view WaitReasonName(WaitReason reason) {
  switch (reason) {
    case WaitReason::kWeightsReady:
      return "weights_ready";
    case WaitReason::kSlotFree:
      return "slot_free";
    case WaitReason::kGradientReady:
      return "gradient_ready";
    case WaitReason::kSlabFree:
      return "slab_free";
    case WaitReason::kUnitUpdated:
      return "unit_updated";
    case WaitReason::kStateReady:
      return "state_ready";
    case WaitReason::kActivations:
      return "activations";
    case WaitReason::kStashFree:
      return "stash_free";
    case WaitReason::kNorm:
      return "norm";
    case WaitReason::kNoWork:
      return "no_work";
  }
  return "unknown";
}

}  // namespace megatrain
