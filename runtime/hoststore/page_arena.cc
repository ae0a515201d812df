#include "runtime/hoststore/page_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::Status NoRoom(int64_t size_bytes) {
  return absl::ResourceExhaustedError(
      absl::ErrnoToStatus(errno, absl::StrCat("no room for ", size_bytes, " bytes")).message());
}

// Writes to every page what is there already.
void Touch(char* data, int64_t size_bytes) {
  static const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  for (int64_t offset = 0; offset < size_bytes; offset += page_bytes) {
    volatile char* byte = data + offset;
    *byte = *byte;
  }
}

}  // namespace

PageArena::PageArena(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (int part = 0; part < part_count(); ++part) {
    const int shown = parts_[part].shows;
    MT_CHECK(shown <= part && parts_[shown].shows == shown);
    MT_CHECK(parts_[shown].size_bytes == parts_[part].size_bytes);
    offsets_.push_back(owns(part) ? size_bytes_ : offsets_[shown]);
    size_bytes_ += owns(part) ? parts_[part].size_bytes : 0;
  }
}

absl::StatusOr<std::unique_ptr<PageArena>> PageArena::Map(std::vector<Part> parts, int protection) {
  auto arena = std::unique_ptr<PageArena>(new PageArena(std::move(parts)));
  if (arena->size_bytes_ == 0) {
    return arena;
  }
  void* data = mmap(nullptr, arena->size_bytes_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return NoRoom(arena->size_bytes_);
  }
  arena->data_ = static_cast<char*>(data);
  // Huge pages are a matter of speed: a kernel without them refuses, and nothing is lost.
  madvise(arena->data_, arena->size_bytes_, MADV_HUGEPAGE);
  MT_CHECK(madvise(arena->data_, arena->size_bytes_, MADV_DONTFORK) == 0);
  MT_CHECK(madvise(arena->data_, arena->size_bytes_, MADV_DONTDUMP) == 0);
  return arena;
}

PageArena::~PageArena() {
  if (data_ != nullptr) {
    munmap(data_, size_bytes_);
  }
}

void PageArena::Protect(int part, int protection) {
  MT_CHECK(size_bytes(part) == 0 || mprotect(data(part), size_bytes(part), protection) == 0);
}

absl::Status PageArena::Populate(int part, int64_t offset_bytes, int64_t size_bytes) {
  char* piece = data(part) + offset_bytes;
  if (madvise(piece, size_bytes, MADV_POPULATE_WRITE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL) {
    return NoRoom(size_bytes);
  }
  Touch(piece, size_bytes);  // a kernel before 5.14
  return absl::OkStatus();
}

bool PageArena::holds(uintptr_t address) const {
  const auto first = reinterpret_cast<uintptr_t>(data_);
  return first <= address && address < first + size_bytes_;
}

int64_t PageArena::HugePageBytes(std::span<PageArena* const> arenas) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  int64_t huge_bytes = 0;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = std::any_of(arenas.begin(), arenas.end(),
                         [begin](const PageArena* arena) { return arena->holds(begin); });
    } else if (here && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64, &kilobytes) == 1) {
      huge_bytes += kilobytes << 10;
    }
  }
  return huge_bytes;
}

}  // namespace megatrain
