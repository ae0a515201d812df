#include "runtime/pipeline/slab_pool.h"

#include <algorithm>

#include "runtime/base/round_up.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr std::array kCopying = {StreamKind::kHostToDevice, StreamKind::kDeviceToHost,
                                 StreamKind::kStateUp, StreamKind::kStateDown};

// So that every slab begins on a page.
constexpr int64_t kAlignmentBytes = 4096;

constexpr int64_t kLargestElementBytes = 4;

int64_t SlabBytes(const ModelLayout& layout, int64_t most_bytes) {
  const int64_t plane_bytes = layout.LargestUnitElements() * kLargestElementBytes;
  return std::min(most_bytes, RoundUp(plane_bytes, kAlignmentBytes));
}

}  // namespace

int64_t SlabPool::Bytes(const ModelLayout& layout, int64_t slab_bytes) {
  return static_cast<int64_t>(kCopying.size()) * SlabLane::kSlabCount *
         SlabBytes(layout, slab_bytes);
}

absl::StatusOr<std::unique_ptr<SlabPool>> SlabPool::Create(Device& device,
                                                           const ModelLayout& layout,
                                                           int64_t slab_bytes, int threads) {
  std::unique_ptr<SlabPool> pool(new SlabPool());
  for (const StreamKind stream : kCopying) {
    MT_ASSIGN_OR_RETURN(pool->lanes_[static_cast<int>(stream)],
                        SlabLane::Create(device, SlabBytes(layout, slab_bytes), threads));
  }
  return pool;
}

absl::StatusOr<std::unique_ptr<SlabLane>> SlabPool::MakeLane(Device& device,
                                                             const ModelLayout& layout,
                                                             int threads) {
  return SlabLane::Create(device, SlabBytes(layout, kSlabBytes), threads);
}

}  // namespace megatrain
