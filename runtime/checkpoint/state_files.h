#ifndef RUNTIME_CHECKPOINT_STATE_FILES_H_
#define RUNTIME_CHECKPOINT_STATE_FILES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {

// The files of a checkpoint's planes: each holds one plane of the host store, unit after unit, each
// from a multiple of kDiskBlockBytes on, as they lie in memory. So the disk reads from the store's
// own pages and writes to them, and nothing is copied. Little-endian.
struct StateFile {
  const char* name;
  HostStore::Plane plane;
  int element_bytes;
  bool is_weights;  // else a moment
};
inline constexpr std::array<StateFile, 4> kStateFiles = {
    StateFile{"adam_m.bin", HostStore::Plane::kMoment1, 4, false},
    StateFile{"adam_v.bin", HostStore::Plane::kMoment2, 4, false},
    StateFile{"weights_hi.bin", HostStore::Plane::kHi, 2, true},
    StateFile{"weights_lo.bin", HostStore::Plane::kLo, 2, true}};

std::vector<int64_t> UnitElements(const ModelLayout& layout);

// Of the file of a model whose units have so many elements.
int64_t StateFileBytes(const StateFile& file, std::span<const int64_t> unit_elements);

// Of all of them.
int64_t StateBytes(std::span<const int64_t> unit_elements);

// Calls `use` with the store's memory that lies at [offset_bytes, offset_bytes + size_bytes) of the
// file, in order, piece by piece of a unit each, and stops at its first error. Pieces start at a
// multiple of kDiskBlockBytes, in memory too, when `offset_bytes` does.
absl::Status ForEachPiece(const StateFile& file, HostStore& store,
                          std::span<const int64_t> unit_elements, int64_t offset_bytes,
                          int64_t size_bytes,
                          const std::function<absl::Status(std::span<char>)>& use);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_STATE_FILES_H_
