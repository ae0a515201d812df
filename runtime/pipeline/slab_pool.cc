#include "runtime/pipeline/slab_pool.h"

#include <algorithm>

#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr std::array kCopying = {StreamKind::kHostToDevice, StreamKind::kDeviceToHost,
                                 StreamKind::kStateUp, StreamKind::kStateDown};

// So that every slab begins on a page.
constexpr int64_t kAlignmentBytes = 4096;

constexpr int64_t kLargestElementBytes = 4;

}  // namespace

int64_t SlabPool::SlabBytes(const ModelLayout& layout) {
  const int64_t plane_bytes = layout.LargestUnitElements() * kLargestElementBytes;
  return std::min(kSlabBytes,
                  (plane_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes);
}

int64_t SlabPool::Bytes(const ModelLayout& layout) {
  return static_cast<int64_t>(kCopying.size()) * SlabLane::kSlabCount * SlabBytes(layout);
}

absl::StatusOr<std::unique_ptr<SlabPool>> SlabPool::Create(Device& device,
                                                           const ModelLayout& layout, int threads) {
  std::unique_ptr<SlabPool> pool(new SlabPool());
  for (const StreamKind stream : kCopying) {
    MT_ASSIGN_OR_RETURN(pool->lanes_[static_cast<int>(stream)],
                        SlabLane::Create(device, SlabBytes(layout), std::min(threads, kThreads)));
  }
  return pool;
}

}  // namespace megatrain
