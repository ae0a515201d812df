#ifndef RUNTIME_HOSTSTORE_PINNED_ARENA_H_
#define RUNTIME_HOSTSTORE_PINNED_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/hoststore/page_arena.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/hoststore/pin_arena.h"

namespace megatrain {

// Host memory that a device copies to and from, all of it taken by Create: tens of GiB in seconds,
// where the driver's own allocation takes most of a second a GiB. In parts, and these in pieces,
// each from a page boundary on; no copy may cross from one into another, so that none has to be
// pinned together with others. Never copied by fork and never in a core dump.
class PinnedArena {
 public:
  // Pieces of one size.
  struct Part {
    int64_t piece_bytes = 0;
    int piece_count = 1;

    bool operator==(const Part&) const = default;
  };

  // Some parts may be empty, but not all. Faults pages in with so many threads, of which `progress`
  // hears. `pinner` outlives the arena; nullptr: nothing is pinned. Pins in calls of at most
  // `chunk_bytes`, or one piece. What is refused stays pageable, see refusal(). RESOURCE_EXHAUSTED
  // when the system has no room; errors of `progress`.
  static absl::StatusOr<std::unique_ptr<PinnedArena>> Create(std::span<const Part> parts,
                                                             int threads, PagePinner* pinner,
                                                             const ByteProgress& progress,
                                                             int64_t chunk_bytes = kPinChunkBytes);

  // What Create takes.
  static int64_t Bytes(std::span<const Part> parts);

  ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  std::byte* data(int part, int piece = 0) const {
    return reinterpret_cast<std::byte*>(arena_->data(first_pieces_[part] + piece));
  }

  // Whether the memory at an address is pinned, how much is, and why not all: OK when all is, or
  // there is no pinner.
  bool pins(const void* address) const { return pinned_.Hold(address); }
  int64_t pinned_bytes() const { return pinned_.size_bytes(); }
  const absl::Status& refusal() const { return refusal_; }

 private:
  PinnedArena(std::span<const Part> parts, std::unique_ptr<PageArena> arena, PagePinner* pinner);

  std::vector<int> first_pieces_;  // by part, of the arena's
  const std::unique_ptr<PageArena> arena_;
  PagePinner* const pinner_;
  PinnedRanges pinned_;
  absl::Status refusal_;
};

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_PINNED_ARENA_H_
