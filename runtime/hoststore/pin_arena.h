#ifndef RUNTIME_HOSTSTORE_PIN_ARENA_H_
#define RUNTIME_HOSTSTORE_PIN_ARENA_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/hoststore/page_arena.h"
#include "runtime/hoststore/page_pinner.h"

namespace megatrain {

// Drivers fail at 512 GiB in one call. Far less than that, so that little is left out where one is
// refused.
inline constexpr int64_t kPinChunkBytes = int64_t{4} << 30;

// What pinner.Pin took, call by call.
class PinnedRanges {
 public:
  void Add(void* data, int64_t size_bytes) { ranges_.push_back({data, size_bytes}); }
  void UnpinAll(PagePinner& pinner);

  // Whether the byte lies in one of them.
  bool Hold(const void* address) const;
  int64_t size_bytes() const;

 private:
  struct Range {
    void* data;
    int64_t size_bytes;
  };
  std::vector<Range> ranges_;
};

// Pins the memory of `arena` in order, in calls of at most `chunk_bytes`, or one part; none is
// divided. Ends with the first call that is refused, with that refusal; `ranges` gains what was
// pinned until then.
absl::Status PinArena(PagePinner& pinner, const PageArena& arena, int64_t chunk_bytes,
                      PinnedRanges& ranges);

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_PIN_ARENA_H_
