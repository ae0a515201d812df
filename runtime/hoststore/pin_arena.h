#ifndef RUNTIME_HOSTSTORE_PIN_ARENA_H_
#define RUNTIME_HOSTSTORE_PIN_ARENA_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/hoststore/page_arena.h"
#include "runtime/hoststore/page_pinner.h"

namespace megatrain {

// Drivers fail at 512 GiB in one call.
inline constexpr int64_t kPinChunkBytes = int64_t{64} << 30;

// What pinner.Pin took, by its first byte, and how much that is.
struct PinnedRanges {
  std::vector<void*> first_bytes;
  int64_t size_bytes = 0;
};

// Pins all parts of `arena` in order, in calls of at most `chunk_bytes`, or one part; none is
// divided. Ends with the first call that is refused, with that refusal; `ranges` gains what was
// pinned until then.
absl::Status PinArena(PagePinner& pinner, const PageArena& arena, int64_t chunk_bytes,
                      PinnedRanges& ranges);

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_PIN_ARENA_H_
