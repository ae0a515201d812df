// Measures UpdateUnit alone: adamw_benchmark [threads [million parameters [gradient bytes]]].

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "absl/time/time.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/optimizer/update_unit.h"

namespace megatrain {
namespace {

constexpr int kRounds = 10;

ModelLayout OneMatrix(int64_t count) {
  const TensorLayout matrix = {.role = TensorRole::kQuery,
                               .name = "matrix",
                               .shape = {count, 1},
                               .offset_elements = 0,
                               .element_count = count,
                               .decays = true};
  return {.units = {{.kind = UnitKind::kDecoderLayer,
                     .layer_index = 0,
                     .tensors = {matrix},
                     .element_count = count}},
          .tied = false};
}

// Normal values: zeros would run faster than any real step.
void Fill(HostStore& store, int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    const SplitFloat weight = Split(normal(random));
    store.hi(0)[i] = weight.hi;
    store.lo(0)[i] = weight.lo;
    const float gradient = normal(random);
    store.moment1(0)[i] = gradient;
    store.moment2(0)[i] = gradient * gradient;
    if (store.gradient_bytes() == 4) {
      static_cast<float*>(store.gradient(0))[i] = gradient;
    } else {
      static_cast<uint16_t*>(store.gradient(0))[i] = Split(gradient).hi;
    }
  }
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t count = int64_t{argc > 2 ? std::atoi(argv[2]) : 64} << 20;
  const int gradient_bytes = argc > 3 ? std::atoi(argv[3]) : 4;
  const ModelLayout layout = OneMatrix(count);
  auto store = HostStore::Create(layout, {.gradient_bytes = gradient_bytes});
  MT_CHECK(store.ok());
  Fill(**store, count);
  OptimizerPool pool(threads);
  SystemClock clock;
  UpdateUnit(layout, 0, {.step = 1}, **store, pool);
  const absl::Duration start = clock.MonotonicNow();
  for (int round = 0; round < kRounds; ++round) {
    UpdateUnit(layout, 0, {.weight_decay = 0.1, .step = 2 + round}, **store, pool);
  }
  const double seconds = absl::ToDoubleSeconds(clock.MonotonicNow() - start);
  const double rate = static_cast<double>(count) * kRounds / seconds;
  // Weights and moments are read and written, the gradient is read.
  const double bytes_per_parameter = 2 * 12 + gradient_bytes;
  std::printf("%d threads, %lld parameters: %.3f Gparam/s, %.1f GB/s\n", threads,
              static_cast<long long>(count), rate / 1e9, rate * bytes_per_parameter / 1e9);
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
