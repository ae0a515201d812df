#include "runtime/optimizer/update_unit.h"

#include <algorithm>
#include <cstdint>

namespace megatrain {
namespace {

// Small enough to share a layer among many threads, large enough that claiming one costs nothing:
// 1.7 MB of traffic.
constexpr int64_t kChunkElements = int64_t{1} << 16;

int64_t ChunkCount(const TensorLayout& tensor) {
  return (tensor.element_count + kChunkElements - 1) / kChunkElements;
}

struct Work {
  const UnitLayout& layout;
  const int unit;
  const AdamWStep decaying;
  const AdamWStep plain;  // without weight decay
  HostStore& store;
};

void UpdateChunk(const Work& work, const TensorLayout& tensor, int64_t chunk) {
  const int64_t in_tensor = chunk * kChunkElements;
  const int64_t first = tensor.offset_elements + in_tensor;
  const int gradient_bytes = work.store.gradient_bytes();
  const auto* gradients = static_cast<const char*>(work.store.gradient(work.unit));
  UpdateSpan({.hi = work.store.hi(work.unit) + first,
              .lo = work.store.lo(work.unit) + first,
              .moment1 = work.store.moment1(work.unit) + first,
              .moment2 = work.store.moment2(work.unit) + first,
              .gradient = gradients + first * gradient_bytes,
              .gradient_bytes = gradient_bytes,
              .count = std::min(kChunkElements, tensor.element_count - in_tensor)},
             tensor.decays ? work.decaying : work.plain);
}

}  // namespace

void UpdateUnit(const ModelLayout& layout, int unit, const AdamWStep& step, HostStore& store,
                OptimizerPool& pool) {
  AdamWStep plain = step;
  plain.weight_decay = 0.0;
  const Work work = {layout.units[unit], unit, step, plain, store};
  int64_t chunk_count = 0;
  for (const TensorLayout& tensor : work.layout.tensors) {
    chunk_count += ChunkCount(tensor);
  }
  const HostStore::Access access = store.BeginAccess(unit);
  pool.Run(chunk_count, [&work](int64_t chunk) {
    for (const TensorLayout& tensor : work.layout.tensors) {
      if (chunk < ChunkCount(tensor)) {
        return UpdateChunk(work, tensor, chunk);
      }
      chunk -= ChunkCount(tensor);
    }
  });
}

}  // namespace megatrain
