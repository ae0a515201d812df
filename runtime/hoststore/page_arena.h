#ifndef RUNTIME_HOSTSTORE_PAGE_ARENA_H_
#define RUNTIME_HOSTSTORE_PAGE_ARENA_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// One range of pages, zero at first, that is never copied by fork and never in a core dump. It is
// divided into parts of whole pages; a part may be an earlier one under another number. The system
// gives a page its memory when it is first touched, a huge page where it can. Thread-safe.
class PageArena {
 public:
  struct Part {
    int64_t size_bytes;
    int shows;  // its own number, or that of an earlier part of the same size which shows itself
  };

  // Parts may be empty. `protection` as for mmap. RESOURCE_EXHAUSTED when the system has no room.
  static absl::StatusOr<std::unique_ptr<PageArena>> Map(std::vector<Part> parts, int protection);

  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  char* data(int part) const { return data_ + offsets_[part]; }
  int64_t size_bytes(int part) const { return parts_[part].size_bytes; }
  int part_count() const { return static_cast<int>(parts_.size()); }

  // Whether the part has memory of its own, which follows that of the parts before it; else it is
  // part shown(part).
  bool owns(int part) const { return shown(part) == part; }
  int shown(int part) const { return parts_[part].shows; }

  // `protection` as for mprotect.
  void Protect(int part, int protection);

  // Gives a piece of a part, readable and writable now, its memory; contents stay. May be called
  // for several pieces at once. RESOURCE_EXHAUSTED when there is none.
  absl::Status Populate(int part, int64_t offset_bytes, int64_t size_bytes);

  // How much of these arenas lies in huge pages now. The kernel walks the process's whole memory
  // for it: once for all arenas.
  static int64_t HugePageBytes(std::span<PageArena* const> arenas);

 private:
  explicit PageArena(std::vector<Part> parts);

  bool holds(uintptr_t address) const;

  const std::vector<Part> parts_;
  std::vector<int64_t> offsets_;  // of each part in the range
  int64_t size_bytes_ = 0;        // of the range
  char* data_ = nullptr;
};

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_PAGE_ARENA_H_
