// The streams of a device by name, why one waits, and what it did so far. Values only.

#ifndef RUNTIME_DEVICE_STREAM_FIGURES_H_
#define RUNTIME_DEVICE_STREAM_FIGURES_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/time/time.h"

namespace megatrain {

// One in-order queue of work each.
enum class StreamKind {
  kCompute,       // the templates' forward and backward
  kHostToDevice,  // weights, and activations on their way back
  kDeviceToHost,  // gradients, and activations that wait on the host for their backward
  kOptimizer,     // norm and AdamW, on the host
  kDeviceUpdate,  // AdamW on the device, beside the next step's forward
  kStateUp,       // for updates over the bus, optimizer state to the device and back: apart from
  kStateDown,     // weights and gradients, which so wait for no more than a chunk
  kStateUpdate,   // AdamW in between
};

inline constexpr std::array kAllStreams = {StreamKind::kCompute,      StreamKind::kHostToDevice,
                                           StreamKind::kDeviceToHost, StreamKind::kOptimizer,
                                           StreamKind::kDeviceUpdate, StreamKind::kStateUp,
                                           StreamKind::kStateDown,    StreamKind::kStateUpdate};
inline constexpr int kStreamCount = static_cast<int>(kAllStreams.size());

// What a stream that does not work waits for.
enum class WaitReason {
  kWeightsReady,   // compute, for a unit's weights in their slot
  kSlotFree,       // h2d, for the last reader of a weight slot; state_h2d, for a staging slot
  kGradientReady,  // d2h, for a unit's final gradient
  kSlabFree,       // compute, for the copy of the gradient slot's last unit to the host
  kUnitUpdated,    // h2d and compute, for a unit's update; state_d2h, for a chunk's
  kStateReady,     // state_update, for a chunk of optimizer state
  kActivations,    // for what a layer left for its backward: d2h for its forward, h2d for its copy
                   // on the host, compute for its way back
  kStashFree,      // compute and h2d, for where such activations are to lie on the device
  kNorm,           // optimizer, for all gradients; what updates on the device, for their norm
  kNoWork,         // nothing is enqueued
};

inline constexpr std::array kAllWaitReasons = {WaitReason::kWeightsReady,  WaitReason::kSlotFree,
                                               WaitReason::kGradientReady, WaitReason::kSlabFree,
                                               WaitReason::kUnitUpdated,   WaitReason::kStateReady,
                                               WaitReason::kActivations,   WaitReason::kStashFree,
                                               WaitReason::kNorm,          WaitReason::kNoWork};
inline constexpr int kWaitReasonCount = static_cast<int>(kAllWaitReasons.size());

// As metrics spell them: "compute", "h2d", ...; "weights_ready", "slot_free", ...
std::string_view StreamName(StreamKind stream);
std::string_view WaitReasonName(WaitReason reason);

// Cumulative since the stream was made, running work and waits included: busy and waits add up
// to `wall`.
struct StreamFigures {
  absl::Duration busy;
  std::array<absl::Duration, kWaitReasonCount> waits;  // by WaitReason
  absl::Duration wall;
  int64_t operation_count = 0;  // finished

  absl::Duration wait(WaitReason reason) const { return waits[static_cast<int>(reason)]; }
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_STREAM_FIGURES_H_
