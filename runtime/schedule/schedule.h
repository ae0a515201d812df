// One step as data: what runs on which stream, in which slots, after which events.

#ifndef RUNTIME_SCHEDULE_SCHEDULE_H_
#define RUNTIME_SCHEDULE_SCHEDULE_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/check.h"
#include "runtime/device/stream_figures.h"

namespace megatrain {

// In which order a step's micro-batches meet its layers. Both give the same bits.
enum class MicroBatchOrder {
  kLayerMajor,       // all micro-batches through a unit, then the next unit: weights cross the bus
                     // once a pass; boundaries of the whole step are kept
  kMicroBatchMajor,  // forward and backward of one micro-batch, then the next: boundaries of one
                     // micro-batch are kept; every unit has an own gradient accumulator
};

// Where what a layer keeps of one micro-batch waits for backward.
enum class KeptPlace {
  kNowhere,  // it keeps nothing of it
  kDevice,
  kHost,
};

// Where a unit's AdamW runs, and what of the unit stays on the device for it. All give the same
// bits. Bytes are those of a bf16 step, an element.
enum class UpdatePlacement {
  kHost,     // on the host's processors: weights come up for every pass, the gradient goes down
  kDevice,   // on the device, where weights, gradient accumulator and state stay: nothing crosses
  kOverBus,  // on the device, from the host's memory: weights and gradient cross as with kHost, and
             // then the whole state passes through in chunks, 14 bytes up and 12 down
  kOverBusKeptGradient,  // as kOverBus, but the gradient, 2 bytes once it is rounded, waits for the
                         // norm on the device: 12 bytes pass up and 12 down, and the host needs no
                         // memory for it
  kOverBusResident,  // on the device, where weights and gradient accumulator stay as with kDevice;
                     // low halves and moments pass through in chunks, 10 bytes up and 10 down
};

constexpr bool StaysOnDevice(UpdatePlacement placement) {
  return placement == UpdatePlacement::kDevice || placement == UpdatePlacement::kOverBusResident;
}

// Whether the rounded gradient waits on the device, in memory of its own.
constexpr bool KeepsGradient(UpdatePlacement placement) {
  return placement == UpdatePlacement::kOverBusKeptGradient;
}

// Whether the state passes over the bus to be updated.
constexpr bool PassesOverBus(UpdatePlacement placement) {
  return placement == UpdatePlacement::kOverBus || KeepsGradient(placement) ||
         placement == UpdatePlacement::kOverBusResident;
}

// Whether the gradient goes to the host.
constexpr bool GradientCrosses(UpdatePlacement placement) {
  return placement == UpdatePlacement::kHost || placement == UpdatePlacement::kOverBus;
}

// What a schedule depends on. Unit 0 is the embedding, 1..layer_count are the decoder layers, the
// last one is the head.
struct ScheduleShape {
  int layer_count = 1;
  bool tied = false;  // the head reads the embedding's token table too
  int micro_batch_count = 1;
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slot_count = 2;    // for layers; layer_count or more keep every layer resident
  int gradient_slot_count = 1;  // for layers in layer-major order
  bool forward_only = false;    // losses alone: no backward, no update
  std::vector<UpdatePlacement> updates;  // by unit; empty: every unit's is kHost
  // Of updates over the bus: by unit the chunks in which its state passes, and the slots, of a
  // chunk each, that all of them pass through. Not read where no unit's state passes.
  std::vector<int> state_chunks;
  int staging_slot_count = 4;
  // By unit, of which layers count; empty: none. In layer-major order alone. The layer's input, and
  // what it keeps, leave the device in forward and come back for backward; of the second only the
  // micro-batches that `kept_places` has on the host, or all where it is empty.
  std::vector<bool> boundary_on_host;
  std::vector<bool> kept_on_host;
  std::vector<KeptPlace> kept_places;  // by micro-batch
  int stash_slot_count = 1;            // for one layer and micro-batch each

  int unit_count() const { return layer_count + 2; }
  int head_unit() const { return layer_count + 1; }
  UpdatePlacement update_of(int unit) const {
    return updates.empty() ? UpdatePlacement::kHost : updates[unit];
  }
  // Whether its weights and gradient accumulator stay on the device, in slots of their own.
  bool on_device(int unit) const { return StaysOnDevice(update_of(unit)); }
  bool passes_over_bus(int unit) const { return PassesOverBus(update_of(unit)); }
  bool gradient_crosses(int unit) const { return GradientCrosses(update_of(unit)); }
  bool keeps_gradient(int unit) const { return KeepsGradient(update_of(unit)); }
  // Layers that share the rotating slots.
  int streamed_layer_count() const;
  // Whether embedding and head share a weight and a gradient slot: in layer-major order one is done
  // before the other begins. Not where they have a table in common, or a state on the device.
  bool ends_share_slots() const;
  // Slots and accumulators that a schedule of this shape uses, the two below included.
  int used_weight_slot_count() const;
  int used_gradient_slot_count() const;
  // Micro-batches whose boundaries live at the same time.
  int activation_slot_count() const;

  bool stashes_boundary(int unit) const {
    return !boundary_on_host.empty() && boundary_on_host[unit];
  }
  bool stashes_kept(int unit, int micro_batch) const {
    return !kept_on_host.empty() && kept_on_host[unit] &&
           (kept_places.empty() || kept_places[micro_batch] == KeptPlace::kHost);
  }
  bool stashes(int unit, int micro_batch) const {
    return is_layer(unit) && (stashes_boundary(unit) || stashes_kept(unit, micro_batch));
  }
  bool is_layer(int unit) const { return unit >= 1 && unit <= layer_count; }

  // Whether the output of `unit` lies where others of its kind lie before and after it: that of the
  // last layer, and those that go to the host. They take turns at two places, 0 and 1, so that a
  // layer never reads where it writes; the second one is that of the hidden gradients, which come
  // after all of them but the last.
  bool rolls(int unit) const {
    return unit == layer_count || (unit < layer_count && stashes_boundary(unit + 1));
  }
  int rolling_index(int unit) const { return (layer_count - unit) % 2; }
};

// Embedding and head have their own weight and gradient slots, or share the embedding's; then come
// those that streamed layers share, then one for each layer on the device.
inline constexpr int kEmbeddingSlot = 0;
inline constexpr int kHeadSlot = 1;
inline constexpr int kFirstLayerSlot = 2;

// The slots of a shape's units.
class UnitSlots {
 public:
  explicit UnitSlots(const ScheduleShape& shape);

  // The own one of an embedding, a head or a layer on the device; -1 for one that streams.
  int OwnWeightSlot(int unit) const { return weights_[unit]; }
  // Where the unit's gradient accumulates.
  int GradientSlot(int unit) const { return gradients_[unit]; }

 private:
  std::vector<int> weights_;    // by unit
  std::vector<int> gradients_;  // by unit
};

enum class OperationKind {
  kLoadWeights,        // h2d: a unit's weights into its weight slot
  kStashActivations,   // d2h: what a layer leaves for its backward of a micro-batch, to the host
  kFetchActivations,   // h2d: the same back, into a stash slot
  kEmbedForward,       // compute: boundary 0 from tokens
  kLayerForward,       // compute: boundary u from boundary u - 1
  kHead,               // compute: loss, and its gradient to boundary L and to the head's slot
  kHeadLoss,           // compute: loss alone
  kLayerBackward,      // compute: hidden gradient in place, adds to the gradient slot
  kEmbedBackward,      // compute: adds to the gradient slot
  kFinalizeGradients,  // compute: sums of squares, rounding to the host plane's dtype; the
                       // embedding of a tied model adds the head's part of the table first. Ends
                       // in the gradient slot, or where the unit keeps its gradient
  kDownloadGradients,  // d2h: a unit's gradient to the host
  kDownloadResults,    // d2h: losses, sums of squares and marks of what is not finite
  kNorm,               // optimizer: takes the results; global norm, clip coefficient, finite or not
  kUpdate,             // optimizer: AdamW on a unit
  kUpdateOnDevice,     // device_update: AdamW on a unit whose state is on the device
  kLoadState,          // state_h2d: a chunk of a unit's state, and of what else is not there
  kUpdateChunk,        // state_update: AdamW on a chunk
  kStoreState,         // state_d2h: the chunk back to the host
};

// What one operation records and others wait for. Every key composes across steps: a wait means
// the latest record before it in issue order, of this step or an earlier one.
enum class EventKind {
  kWeightsReady,         // of a weight slot
  kSlotFree,             // of a weight slot: its last reader is done, its content is gone
  kGradientReady,        // of a gradient slot
  kSlabFree,             // of a gradient slot
  kUnitUpdated,          // of a unit
  kStateReady,           // of a staging slot
  kChunkUpdated,         // of a staging slot
  kStagingFree,          // of a staging slot: its chunk is on the host
  kActivationsComputed,  // of an activation slot: a layer has left there what goes to the host
  kActivationsOnHost,    // of an activation slot: that, and all that was to go there before it
  kActivationsFetched,   // of a stash slot
  kStashFree,            // of a stash slot: its last reader is done, its content is gone
  kBoundaryFree,         // of a rolling boundary, see RollingBoundary: the same
  kResultsReady,         // the last compute operation that writes results; index 0, as all below
  kResultsOnHost,        // results, and all gradients that were to come before them
  kResultsFree,          // the results' device memory
  kResultsTaken,         // the results' host memory is free
  kNormKnown,            // for updates on the device
  kResult,               // losses and norm of the step are known; for the host to await
};

struct EventKey {
  EventKind kind;
  int index;

  bool operator==(const EventKey&) const = default;
};

// Of one operation, which has a few: without memory of its own, as schedules are built by the
// thousand to compare placements.
class EventKeys {
 public:
  void push_back(EventKey key) {
    MT_CHECK(size_ < static_cast<int>(keys_.size()));
    keys_[size_++] = key;
  }
  void clear() { size_ = 0; }
  int size() const { return size_; }
  const EventKey* begin() const { return keys_.data(); }
  const EventKey* end() const { return keys_.data() + size_; }

 private:
  std::array<EventKey, 6> keys_ = {};
  int size_ = 0;
};

// The index of the rolling boundary at `place` (ScheduleShape::rolling_index) of an activation
// slot.
inline int RollingBoundary(int activation_slot, int place) { return 2 * activation_slot + place; }

// Why a stream waits for an event of this kind.
WaitReason ReasonOf(EventKind kind);

// True when the record may be one of an earlier step; the first step of all finds none and does
// not wait.
bool CrossesSteps(EventKind kind);

// One piece of work on one stream. Fields that a kind does not use are -1.
struct Operation {
  OperationKind kind;
  StreamKind stream;
  int unit = -1;
  int micro_batch = -1;
  int activation_slot = -1;      // where the micro-batch's boundaries lie
  int weight_slot = -1;          // a tied head reads kEmbeddingSlot beside it
  int stash_slot = -1;           // of a layer that stashes, where it goes through one
  int gradient_slot = -1;        // a tied embedding's finalize reads kHeadSlot beside it
  int chunk = -1;                // of the unit's state
  int staging_slot = -1;         // where the chunk passes through
  bool clears_gradient = false;  // zeroes the gradient slot first
  EventKeys waits;               // before it runs
  // After it ran; what kSlotFree, kStashFree and kBoundaryFree name is poisoned before.
  EventKeys records;
};

// Operations in issue order: an event is recorded before, in this order, it is waited for, so
// streams that each keep the order cannot deadlock.
struct Schedule {
  ScheduleShape shape;
  std::vector<Operation> operations;
};

// The schedule of one step. Weights of the step before may still be updated when it is issued: the
// load of unit u waits for updated[u], or where its weights stay on the device, their first reader.
// INVALID_ARGUMENT when a count is below 1, or a list by unit names another number of units.
absl::StatusOr<Schedule> BuildSchedule(const ScheduleShape& shape);

// Such as "layer_backward unit 3 micro-batch 1" and "slot_free[2]".
std::string Describe(const Operation& operation);
std::string Describe(EventKey event);

}  // namespace megatrain

#endif  // RUNTIME_SCHEDULE_SCHEDULE_H_
