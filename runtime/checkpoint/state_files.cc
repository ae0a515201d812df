#include "runtime/checkpoint/state_files.h"

#include <algorithm>

#include "runtime/base/file_system.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

int64_t UnitBytes(const StateFile& file, int64_t elements) {
  const int64_t bytes = elements * file.element_bytes;
  return (bytes + kDiskBlockBytes - 1) / kDiskBlockBytes * kDiskBlockBytes;
}

char* UnitMemory(const StateFile& file, HostStore& store, int unit) {
  switch (file.plane) {
    case HostStore::Plane::kHi:
      return reinterpret_cast<char*>(store.hi(unit));
    case HostStore::Plane::kLo:
      return reinterpret_cast<char*>(store.lo(unit));
    case HostStore::Plane::kMoment1:
      return reinterpret_cast<char*>(store.moment1(unit));
    case HostStore::Plane::kMoment2:
      return reinterpret_cast<char*>(store.moment2(unit));
    case HostStore::Plane::kGradient:
      break;
  }
  return static_cast<char*>(store.gradient(unit));
}

}  // namespace

std::vector<int64_t> UnitElements(const ModelLayout& layout) {
  std::vector<int64_t> elements;
  elements.reserve(layout.units.size());
  for (const UnitLayout& unit : layout.units) {
    elements.push_back(unit.element_count);
  }
  return elements;
}

int64_t StateFileBytes(const StateFile& file, std::span<const int64_t> unit_elements) {
  int64_t total = 0;
  for (const int64_t elements : unit_elements) {
    total += UnitBytes(file, elements);
  }
  return total;
}

int64_t StateBytes(std::span<const int64_t> unit_elements) {
  int64_t total = 0;
  for (const StateFile& file : kStateFiles) {
    total += StateFileBytes(file, unit_elements);
  }
  return total;
}

absl::Status ForEachPiece(const StateFile& file, HostStore& store,
                          std::span<const int64_t> unit_elements, int64_t offset_bytes,
                          int64_t size_bytes,
                          const std::function<absl::Status(std::span<char>)>& use) {
  const int64_t end = offset_bytes + size_bytes;
  int64_t unit_start = 0;
  for (size_t unit = 0; unit < unit_elements.size() && unit_start < end; ++unit) {
    const int64_t unit_end = unit_start + UnitBytes(file, unit_elements[unit]);
    const int64_t first = std::max(offset_bytes, unit_start);
    const int64_t last = std::min(end, unit_end);
    if (first < last) {
      const HostStore::Access access = store.BeginAccess(static_cast<int>(unit));
      char* memory = UnitMemory(file, store, static_cast<int>(unit)) + (first - unit_start);
      MT_RETURN_IF_ERROR(use({memory, static_cast<size_t>(last - first)}));
    }
    unit_start = unit_end;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
