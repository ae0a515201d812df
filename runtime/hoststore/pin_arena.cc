#include "runtime/hoststore/pin_arena.h"

#include <cstdint>

#include "absl/status/status.h"

namespace megatrain {

void PinnedRanges::UnpinAll(PagePinner& pinner) {
  for (const Range& range : ranges_) {
    pinner.Unpin(range.data);
  }
  ranges_.clear();
}

bool PinnedRanges::Hold(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Range& range : ranges_) {
    const auto first = reinterpret_cast<uintptr_t>(range.data);
    if (first <= at && at - first < static_cast<uintptr_t>(range.size_bytes)) {
      return true;
    }
  }
  return false;
}

int64_t PinnedRanges::size_bytes() const {
  int64_t total = 0;
  for (const Range& range : ranges_) {
    total += range.size_bytes;
  }
  return total;
}

absl::Status PinArena(PagePinner& pinner, const PageArena& arena, int64_t chunk_bytes,
                      PinnedRanges& ranges) {
  char* data = nullptr;
  int64_t size_bytes = 0;
  const auto pin = [&] {
    const absl::Status status = size_bytes > 0 ? pinner.Pin(data, size_bytes) : absl::OkStatus();
    if (status.ok() && size_bytes > 0) {
      ranges.Add(data, size_bytes);
    }
    size_bytes = 0;
    return status;
  };
  absl::Status status;
  for (int part = 0; status.ok() && part < arena.part_count(); ++part) {
    const int64_t part_bytes = arena.owns(part) ? arena.size_bytes(part) : 0;
    if (size_bytes + part_bytes > chunk_bytes) {
      status = pin();
    }
    data = size_bytes == 0 ? arena.data(part) : data;
    size_bytes += part_bytes;
  }
  return status.ok() ? pin() : status;
}

}  // namespace megatrain
