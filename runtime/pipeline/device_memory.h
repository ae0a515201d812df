// How the pipeline's device memory is laid out: pure arithmetic, which the planner adds up and
// the pipeline allocates.

#ifndef RUNTIME_PIPELINE_DEVICE_MEMORY_H_
#define RUNTIME_PIPELINE_DEVICE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Bytes by what they hold.
struct DeviceBytes {
  int64_t weights = 0;
  int64_t gradients = 0;       // being summed
  int64_t kept_gradients = 0;  // complete ones, waiting for the norm
  int64_t states = 0;          // of units that the device updates, and what passes through
  int64_t activations = 0;     // boundaries and what layers keep
  int64_t workspace = 0;

  int64_t total() const {
    return weights + gradients + kept_gradients + states + activations + workspace;
  }
};

// A part of the arena; starts at a multiple of kDeviceAlignmentBytes.
struct DeviceRegion {
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
};

inline constexpr int64_t kDeviceAlignmentBytes = 256;

// Of a unit that stays on the device, or keeps its gradient there; empty regions for all others.
struct DeviceState {
  DeviceRegion weights;  // its weight slot
  DeviceRegion hi;       // with bf16 compute the same
  DeviceRegion lo;       // empty, as the moments, where these pass over the bus
  DeviceRegion moment1;
  DeviceRegion moment2;
  DeviceRegion gradient;  // of a unit that keeps it, in the host plane's dtype
};

// Where a chunk passes through that is updated over the bus.
struct StagingSlot {
  DeviceRegion lo;
  DeviceRegion moment1;
  DeviceRegion moment2;
  DeviceRegion hi;        // empty when all units that pass stay on the device
  DeviceRegion gradient;  // in the host plane's dtype; empty when none comes from there
};

// How a slot for one micro-batch's stashed activations is divided; all 0 where nothing is stashed.
struct StashSizes {
  int64_t boundary_bytes = 0;  // of a slot, at its start; what the layer keeps follows
  int64_t kept_bytes = 0;      // of a slot, for the layer that stashes most
};

// Where everything lies in one arena of bytes.total() bytes.
struct DeviceMemoryMap {
  std::vector<DeviceRegion> weight_slots;    // by weight slot, in compute dtype
  std::vector<DeviceRegion> gradient_slots;  // by gradient slot, fp32 by the unit's layout
  DeviceRegion tied_matrix_gradient;         // of a tied model, fp32 [vocab, d]: the head's part
  std::vector<DeviceState> states;           // by unit
  std::vector<StagingSlot> staging_slots;    // none when no unit's state passes over the bus
  // By unit below the head, [activation_tokens, d]. A boundary that goes to the host lies in the
  // region of the last one or in `hidden_gradients`, with every other one of its kind.
  std::vector<DeviceRegion> boundaries;
  // By unit below the head: of all activation tokens, or of as many micro-batches as keep there.
  std::vector<DeviceRegion> kept;
  DeviceRegion hidden_gradients;          // [activation_tokens, d]
  std::vector<DeviceRegion> stash_slots;  // each for one micro-batch
  StashSizes stash_sizes;
  std::vector<DeviceRegion> batch_tables;  // by activation slot
  DeviceRegion results;                    // by ResultsLayout
  DeviceRegion load_staging;               // DeviceMath::LoadFloats'
  DeviceRegion sum_scratch;                // DeviceMath::SumsOfSquares'
  DeviceRegion workspace;
  int64_t micro_batch_tokens = 0;  // of the largest one, aligned
  int64_t activation_tokens = 0;   // micro-batches whose boundaries live at once, aligned each
  DeviceBytes bytes;

  // On the host, not of the arena: HostBoundaryPart and HostKeptPart of every unit below the head,
  // of all activation tokens, and in a piece for each micro-batch that keeps there. Empty when
  // nothing is stashed. What they take is PinnedArena::Bytes.
  std::vector<PinnedArena::Part> host_parts;
};

inline int HostBoundaryPart(int unit) { return 2 * unit; }  // the input of the layer
inline int HostKeptPart(int unit) { return 2 * unit + 1; }

// Requires positive limits and counts in `options`.
DeviceMemoryMap MapDeviceMemory(const ModelLayout& layout, const PipelineOptions& options);

// Of the states of units that stay on the device: what the store lacks until they are fetched, for
// a checkpoint or an export.
int64_t DeviceStateBytes(const DeviceMemoryMap& map);

// The shape of a step's schedule under these options.
ScheduleShape MakeScheduleShape(const ModelLayout& layout, const PipelineOptions& options,
                                int micro_batch_count, bool forward_only);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_DEVICE_MEMORY_H_
