#ifndef RUNTIME_PIPELINE_SLAB_POOL_H_
#define RUNTIME_PIPELINE_SLAB_POOL_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/device.h"
#include "runtime/device/slab_launcher.h"
#include "runtime/device/stream_figures.h"
#include "runtime/pipeline/pipeline_options.h"

namespace megatrain {

// Slabs for each of a pipeline's streams that copies between host and device.
class SlabPool {
 public:
  // Slabs of PipelineOptions' slab_bytes, each lane with what it takes of `threads`.
  // RESOURCE_EXHAUSTED when the device's host memory has no room.
  static absl::StatusOr<std::unique_ptr<SlabPool>> Create(Device& device, const ModelLayout& layout,
                                                          int64_t slab_bytes, int threads);

  // What Create takes.
  static int64_t Bytes(const ModelLayout& layout, int64_t slab_bytes = kSlabBytes);

  // One lane alone, with slabs as large as usual.
  static absl::StatusOr<std::unique_ptr<SlabLane>> MakeLane(Device& device,
                                                            const ModelLayout& layout, int threads);

  // Nullptr where the stream copies nothing of the host's.
  SlabLane* lane(StreamKind stream) const { return lanes_[static_cast<int>(stream)].get(); }

 private:
  SlabPool() = default;

  std::array<std::unique_ptr<SlabLane>, kStreamCount> lanes_;
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_SLAB_POOL_H_
