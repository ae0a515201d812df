#include "runtime/hoststore/pin_arena.h"

#include "runtime/base/status_macros.h"

namespace megatrain {

// A chunk holds only parts whose memory is one piece: not each system can pin a range that consists
// of several mappings.
absl::Status PinArena(PagePinner& pinner, const PageArena& arena, int64_t chunk_bytes,
                      PinnedRanges& ranges) {
  for (int first = 0; first < arena.part_count();) {
    int64_t size_bytes = arena.size_bytes(first);
    int next = first + 1;
    while (next < arena.part_count() && arena.continues(next) &&
           size_bytes + arena.size_bytes(next) <= chunk_bytes) {
      size_bytes += arena.size_bytes(next++);
    }
    if (size_bytes > 0) {
      MT_RETURN_IF_ERROR(pinner.Pin(arena.data(first), size_bytes));
      ranges.first_bytes.push_back(arena.data(first));
      ranges.size_bytes += size_bytes;
    }
    first = next;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
