#include "runtime/optimizer/memory_bandwidth.h"

#include <algorithm>
#include <memory>

#include "runtime/optimizer/optimizer_pool.h"

namespace megatrain {
namespace {

// As large as a chunk of an update.
constexpr int64_t kChunkElements = int64_t{1} << 16;

}  // namespace

double MeasureMemoryBandwidth(int threads, int64_t size_bytes, absl::Duration at_least,
                              const Clock& clock) {
  const int64_t chunks =
      std::max<int64_t>(size_bytes / static_cast<int64_t>(sizeof(float)) / kChunkElements, 1);
  // Not cleared: the threads touch it first.
  const std::unique_ptr<float[]> values(new float[chunks * kChunkElements]);
  OptimizerPool pool(threads);
  pool.Run(chunks, [&](int64_t chunk) {
    std::fill_n(values.get() + chunk * kChunkElements, kChunkElements, 1.0f);
  });
  const absl::Duration start = clock.MonotonicNow();
  absl::Duration passed;
  int64_t rounds = 0;
  while (passed < at_least || rounds == 0) {
    pool.Run(chunks, [&](int64_t chunk) {
      float* part = values.get() + chunk * kChunkElements;
      for (int64_t i = 0; i < kChunkElements; ++i) {
        part[i] += 1.0f;
      }
    });
    ++rounds;
    passed = clock.MonotonicNow() - start;
  }
  const double bytes = 2.0 * static_cast<double>(rounds * chunks * kChunkElements) * sizeof(float);
  return bytes / absl::ToDoubleSeconds(passed);
}

}  // namespace megatrain
