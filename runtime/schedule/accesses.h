// What every operation reads and writes: the checker's picture of the executor.

#ifndef RUNTIME_SCHEDULE_ACCESSES_H_
#define RUNTIME_SCHEDULE_ACCESSES_H_

#include <compare>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/schedule/schedule.h"

namespace megatrain {

// Memory that two operations must not touch at once when one of them writes.
enum class ResourceKind {
  kWeightSlot,       // device
  kGradientSlot,     // device
  kSquares,          // device, of a unit: its sums of squares
  kBoundary,         // device, of a unit and an activation slot; see BoundaryOf
  kHiddenGradient,   // device, of an activation slot
  kStashSlot,        // device
  kHostActivations,  // of a layer and an activation slot, see BoundaryIndex
  kHostWeights,      // hi and lo of a unit
  kHostMoments,      // of a unit
  kHostGradient,     // of a unit
  kResults,          // device: losses, and marks of what is not finite
  kHostResults,      // these and the sums of squares
  kClip,             // the clip coefficient and the verdict on finiteness
  kDeviceState,      // lo and moments of a unit on the device
  kDeviceGradient,   // of a unit that keeps it
  kHostChunk,        // weights and moments of a unit that passes over the bus, see ChunkIndex
  kStagingSlot,      // device
};

inline constexpr int kResourceKindCount = 17;

struct Resource {
  ResourceKind kind;
  int index;  // of the slot, unit or micro-batch; see BoundaryIndex and ChunkIndex

  auto operator<=>(const Resource&) const = default;
};

struct Access {
  Resource resource;
  bool writes;  // also reads, unless it overwrites the whole
};

// A boundary's index: unit's output for the micro-batch in an activation slot.
inline int BoundaryIndex(const ScheduleShape& shape, int unit, int activation_slot) {
  return activation_slot * shape.unit_count() + unit;
}

// One of the two places of rolling boundaries, see ScheduleShape::rolls.
inline Resource RollingPlace(const ScheduleShape& shape, int activation_slot, int place) {
  return place == 0 ? Resource{ResourceKind::kBoundary,
                               BoundaryIndex(shape, shape.layer_count, activation_slot)}
                    : Resource{ResourceKind::kHiddenGradient, activation_slot};
}

// Where a unit's output lies: in memory of its own, or with those that roll.
inline Resource BoundaryOf(const ScheduleShape& shape, int unit, int activation_slot) {
  return shape.rolls(unit)
             ? RollingPlace(shape, activation_slot, shape.rolling_index(unit))
             : Resource{ResourceKind::kBoundary, BoundaryIndex(shape, unit, activation_slot)};
}

// A chunk's index among those of all units.
inline int ChunkIndex(const ScheduleShape& shape, int unit, int chunk) {
  return std::accumulate(shape.state_chunks.begin(), shape.state_chunks.begin() + unit, chunk);
}

// In no particular order, each resource once.
std::vector<Access> AccessesOf(const ScheduleShape& shape, const Operation& operation);

// Such as "weight slot 2".
std::string Describe(const Resource& resource);

}  // namespace megatrain

#endif  // RUNTIME_SCHEDULE_ACCESSES_H_
