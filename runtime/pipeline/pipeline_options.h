#ifndef RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_
#define RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/model/layer_template.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// How copies reach host memory.
enum class PinMode {
  kAuto,   // pins what they touch, in place; what the system refuses goes through slabs
  kFull,   // pins it, or fails
  kSlabs,  // leaves it pageable: all goes through a few pinned slabs that threads fill and empty
};

// Copies of so much run at line rate.
inline constexpr int64_t kSlabBytes = int64_t{16} << 20;

// A placement: decides memory and speed, never a bit of the result.
struct PipelineOptions {
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slot_count = 2;             // shared by the layers: 2 loads one while another computes
  int gradient_slot_count = 2;           // shared by the layers in layer-major order
  bool resident_weights = false;         // a slot for every layer; each crosses the bus once a step
  std::vector<UpdatePlacement> updates;  // by unit; empty: the host updates all
  // For updates over the bus: a chunk's elements, a multiple of kTensorAlignmentElements (16 MiB of
  // the smallest plane, so that copies run at line rate), and the chunks on their way at a time
  // (one comes, one is updated, one goes, and one lets none of them wait).
  int64_t state_chunk_elements = int64_t{8} << 20;
  int staging_slot_count = 4;
  std::vector<KeepLevel> keep;  // by unit, of which layers count; empty: nothing is kept

  // Layer-major order alone: what a layer leaves in forward for its backward may go to pinned host
  // memory and come back through slots of the device, of which each holds the most that one
  // micro-batch of one layer leaves there. By unit, of which layers count; empty: none. Forward
  // writes d2h, t d (boundary) or t KeptTokenBytes(keep) (kept) a layer and micro-batch; backward
  // reads the same from h2d beside the weights. Bytes are MapDeviceMemory's.
  std::vector<bool> boundary_on_host;  // the layer's input; backward always needs it
  std::vector<bool> kept_on_host;      // what keep_of(layer) keeps of a micro-batch, by kept_places

  // Where each micro-batch of the layers in kept_on_host keeps; empty: all on the host. A layer is
  // faster than the bus carries all that it may keep: by micro-batch the load is spread evenly over
  // a pass, which the few slots need. See SpreadKeptPlaces.
  std::vector<KeptPlace> kept_places;  // by micro-batch, max_micro_batches
  int stash_slot_count = 3;            // 2 copy one while another is used; more take up the jitter

  // Above 0: only the first so many layers have memory on the host for what they leave, and later
  // ones write and read theirs in turn. As HostStore's fold_layers: for speed, nothing can be
  // learnt.
  int fold_stash_layers = 0;

  PinMode pin = PinMode::kAuto;
  int64_t slab_bytes = kSlabBytes;  // of one slab, less where no unit has a plane as large
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  int64_t max_micro_batch_tokens = 0;
  int64_t max_step_tokens = 0;  // of all micro-batches of a step
  int max_micro_batches = 0;    // of a step

  // What the model's templates and the device's arithmetic need.
  int64_t workspace_bytes = 0;
  int64_t batch_table_bytes = 0;                               // ModelTemplates::BatchTableBytes
  std::array<int64_t, kKeepLevelCount> kept_token_bytes = {};  // by KeepLevel, KeptTokenBytes
  bool stages_loads = false;                                   // DeviceMath::stages_loads

  // Fills what a slot held when it is freed, so that a late reader shows: for the CPU, where that
  // costs little.
  bool poisons_freed_slots = true;

  UpdatePlacement update_of(int unit) const {
    return updates.empty() ? UpdatePlacement::kHost : updates[unit];
  }
  // Whether its weights and gradient accumulator stay on the device.
  bool on_device(int unit) const { return StaysOnDevice(update_of(unit)); }
  bool gradient_crosses(int unit) const { return GradientCrosses(update_of(unit)); }
  bool keeps_gradient(int unit) const { return KeepsGradient(update_of(unit)); }
  bool stashes_boundary(int unit) const {
    return !boundary_on_host.empty() && boundary_on_host[unit];
  }
  // The layer whose memory on the host `unit` uses.
  int stash_unit(int unit) const {
    return fold_stash_layers > 0 ? (unit - 1) % fold_stash_layers + 1 : unit;
  }
  int64_t kept_bytes_of(int unit) const {
    return kept_token_bytes[static_cast<int>(keep_of(unit))];
  }
  // True where kept_places decides.
  bool kept_by_place(int unit) const {
    return !kept_on_host.empty() && kept_on_host[unit] && kept_bytes_of(unit) > 0;
  }
  KeptPlace kept_place(int unit, int micro_batch) const {
    return !kept_by_place(unit)  ? KeptPlace::kDevice
           : kept_places.empty() ? KeptPlace::kHost
                                 : kept_places[micro_batch];
  }
  // Micro-batches below `end` of a layer for which kept_by_place, that keep at that place.
  int CountKept(KeptPlace place, int end) const {
    if (kept_places.empty()) {
      return place == KeptPlace::kHost ? end : 0;
    }
    return static_cast<int>(std::count(kept_places.begin(), kept_places.begin() + end, place));
  }
  // How much of a step a layer keeps at keep_of(unit); of the rest it keeps nothing.
  double kept_share(int unit) const {
    if (!kept_by_place(unit)) {
      return 1;
    }
    const int nowhere = CountKept(KeptPlace::kNowhere, max_micro_batches);
    return 1 - static_cast<double>(nowhere) / max_micro_batches;
  }
  KeepLevel keep_of(int unit) const { return keep.empty() ? KeepLevel::kNothing : keep[unit]; }
};

// By unit: whether its gradient waits on the host; HostStore's.
inline std::vector<bool> HostGradients(const PipelineOptions& options) {
  std::vector<bool> units;
  units.reserve(options.updates.size());
  for (const UpdatePlacement update : options.updates) {
    units.push_back(GradientCrosses(update));
  }
  return units;
}

// Of `count` micro-batches so many on the host and on the device, each evenly among the others.
inline std::vector<KeptPlace> SpreadKeptPlaces(int count, int on_host, int on_device) {
  std::vector<KeptPlace> places(count, KeptPlace::kNowhere);
  const auto takes = [](int i, int some, int all) { return (i + 1) * some / all > i * some / all; };
  int rest = 0;  // that are not on the host, so far
  for (int i = 0; i < count; ++i) {
    if (takes(i, on_host, count)) {
      places[i] = KeptPlace::kHost;
    } else if (takes(rest++, on_device, count - on_host)) {
      places[i] = KeptPlace::kDevice;
    }
  }
  return places;
}

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_
