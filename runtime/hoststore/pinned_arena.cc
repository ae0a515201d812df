#include "runtime/hoststore/pinned_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/round_up.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/populate_pages.h"

namespace megatrain {
namespace {

int64_t RoundUpToPage(int64_t size_bytes) {
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return RoundUp(size_bytes, page_bytes);
}

std::vector<PageArena::Part> Parts(std::span<const int64_t> part_bytes) {
  std::vector<PageArena::Part> parts;
  for (const int64_t size_bytes : part_bytes) {
    parts.push_back(
        {.size_bytes = RoundUpToPage(size_bytes), .shows = static_cast<int>(parts.size())});
  }
  return parts;
}

}  // namespace

int64_t PinnedArena::Bytes(std::span<const int64_t> part_bytes) {
  int64_t size_bytes = 0;
  for (const PageArena::Part& part : Parts(part_bytes)) {
    size_bytes += part.size_bytes;
  }
  return size_bytes;
}

absl::StatusOr<std::unique_ptr<PinnedArena>> PinnedArena::Create(
    std::span<const int64_t> part_bytes, int threads, PagePinner* pinner,
    const ByteProgress& progress, int64_t chunk_bytes) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<PageArena> pages,
                      PageArena::Map(Parts(part_bytes), PROT_READ | PROT_WRITE));
  auto arena = std::unique_ptr<PinnedArena>(new PinnedArena(std::move(pages), pinner));
  const std::array arenas = {arena->arena_.get()};
  MT_RETURN_IF_ERROR(PopulatePages(arenas, threads, progress).status());
  if (pinner != nullptr) {
    arena->refusal_ = PinArena(*pinner, *arena->arena_, chunk_bytes, arena->pinned_);
  }
  return arena;
}

PinnedArena::~PinnedArena() {
  if (pinner_ != nullptr) {
    pinned_.UnpinAll(*pinner_);
  }
}

}  // namespace megatrain
