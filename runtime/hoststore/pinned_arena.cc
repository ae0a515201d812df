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

std::vector<PageArena::Part> Pieces(std::span<const PinnedArena::Part> parts) {
  std::vector<PageArena::Part> pieces;
  for (const PinnedArena::Part& part : parts) {
    for (int i = 0; i < part.piece_count; ++i) {
      pieces.push_back({.size_bytes = RoundUpToPage(part.piece_bytes),
                        .shows = static_cast<int>(pieces.size())});
    }
  }
  return pieces;
}

}  // namespace

int64_t PinnedArena::Bytes(std::span<const Part> parts) {
  int64_t size_bytes = 0;
  for (const Part& part : parts) {
    size_bytes += part.piece_count * RoundUpToPage(part.piece_bytes);
  }
  return size_bytes;
}

PinnedArena::PinnedArena(std::span<const Part> parts, std::unique_ptr<PageArena> arena,
                         PagePinner* pinner)
    : arena_(std::move(arena)), pinner_(pinner) {
  int piece = 0;
  for (const Part& part : parts) {
    first_pieces_.push_back(piece);
    piece += part.piece_count;
  }
}

absl::StatusOr<std::unique_ptr<PinnedArena>> PinnedArena::Create(std::span<const Part> parts,
                                                                 int threads, PagePinner* pinner,
                                                                 const ByteProgress& progress,
                                                                 int64_t chunk_bytes) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<PageArena> pages,
                      PageArena::Map(Pieces(parts), PROT_READ | PROT_WRITE));
  auto arena = std::unique_ptr<PinnedArena>(new PinnedArena(parts, std::move(pages), pinner));
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
