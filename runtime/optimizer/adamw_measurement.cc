#include "runtime/optimizer/adamw_measurement.h"

#include <cstring>
#include <random>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/optimizer/update_unit.h"

namespace megatrain {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 20;

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

// The first kBlockElements of every plane.
void FillFirstBlock(HostStore& store) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < kBlockElements; ++i) {
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

// Every block becomes a copy of the first.
void RepeatFirstBlock(HostStore& store, int64_t block_count, OptimizerPool& pool) {
  const auto copy = [](void* plane, int64_t block, int64_t element_bytes) {
    const int64_t block_bytes = kBlockElements * element_bytes;
    std::memcpy(static_cast<char*>(plane) + block * block_bytes, plane, block_bytes);
  };
  pool.Run(block_count - 1, [&](int64_t before) {
    const int64_t block = before + 1;
    copy(store.hi(0), block, sizeof(uint16_t));
    copy(store.lo(0), block, sizeof(int16_t));
    copy(store.moment1(0), block, sizeof(float));
    copy(store.moment2(0), block, sizeof(float));
    copy(store.gradient(0), block, store.gradient_bytes());
  });
}

}  // namespace

AdamWMeasurement::AdamWMeasurement(Options options, ModelLayout layout,
                                   std::unique_ptr<HostStore> store)
    : options_(options), layout_(std::move(layout)), store_(std::move(store)) {}

absl::StatusOr<std::unique_ptr<AdamWMeasurement>> AdamWMeasurement::Create(Options options) {
  MT_CHECK(options.element_count > 0 && options.element_count % kBlockElements == 0);
  ModelLayout layout = OneMatrix(options.element_count);
  MT_ASSIGN_OR_RETURN(auto store,
                      HostStore::Create(layout, {.gradient_bytes = options.gradient_bytes}));
  MT_RETURN_IF_ERROR(store->Populate(options.fill_threads, /*progress=*/{}).status());
  OptimizerPool pool(options.fill_threads);
  FillFirstBlock(*store);
  RepeatFirstBlock(*store, options.element_count / kBlockElements, pool);
  return std::unique_ptr<AdamWMeasurement>(
      new AdamWMeasurement(options, std::move(layout), std::move(store)));
}

AdamWMeasurement::Rate AdamWMeasurement::Measure(int threads, absl::Duration at_least) {
  OptimizerPool pool(threads);
  const absl::Duration start = clock_.MonotonicNow();
  absl::Duration passed;
  int64_t rounds = 0;
  while (passed < at_least) {
    UpdateUnit(layout_, 0, {.weight_decay = 0.1, .step = ++step_}, *store_, pool);
    ++rounds;
    passed = clock_.MonotonicNow() - start;
  }
  const double rate =
      static_cast<double>(rounds * options_.element_count) / absl::ToDoubleSeconds(passed);
  constexpr int kKeptBytes = 12;  // of an element, without its gradient
  return {.parameters_per_second = rate,
          .bytes_per_second = rate * (2 * kKeptBytes + options_.gradient_bytes)};
}

}  // namespace megatrain
