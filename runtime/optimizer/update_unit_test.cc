#include "runtime/optimizer/update_unit.h"

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/hoststore/split_float.h"

namespace megatrain {
namespace {

// A norm and a matrix of more than two chunks; 64 elements of padding between them.
ModelLayout Layout() {
  TensorLayout norm = {.role = TensorRole::kAttentionNorm,
                       .name = "norm",
                       .shape = {100},
                       .offset_elements = 0,
                       .element_count = 100,
                       .decays = false};
  TensorLayout matrix = {.role = TensorRole::kQuery,
                         .name = "matrix",
                         .shape = {1501, 100},
                         .offset_elements = 192,
                         .element_count = 150'100,
                         .decays = true};
  UnitLayout unit = {.kind = UnitKind::kDecoderLayer,
                     .layer_index = 0,
                     .tensors = {norm, matrix},
                     .element_count = 150'336};
  return {.units = {unit, unit}, .tied = false};
}

std::unique_ptr<HostStore> FilledStore(const ModelLayout& layout, int gradient_bytes) {
  auto store =
      HostStore::Create(layout, {.gradient_bytes = gradient_bytes, .protect_idle_units = true});
  EXPECT_TRUE(store.ok()) << store.status();
  std::minstd_rand random(11);
  const auto uniform = [&random] {
    return static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) - 0.5f;
  };
  for (int unit = 0; unit < 2; ++unit) {
    const auto access = (*store)->BeginAccess(unit);
    for (int64_t i = 0; i < layout.units[unit].element_count; ++i) {
      const SplitFloat weight = Split(uniform());
      (*store)->hi(unit)[i] = weight.hi;
      (*store)->lo(unit)[i] = weight.lo;
      (*store)->moment1(unit)[i] = uniform();
      (*store)->moment2(unit)[i] = uniform() + 1.0f;
      const float gradient = uniform();
      if (gradient_bytes == 4) {
        static_cast<float*>((*store)->gradient(unit))[i] = gradient;
      } else {
        static_cast<uint16_t*>((*store)->gradient(unit))[i] = Split(gradient).hi;
      }
    }
  }
  return *std::move(store);
}

constexpr AdamWStep kStep = {.learning_rate = 0.01, .weight_decay = 0.5, .step = 3};

bool SameWeights(HostStore& a, HostStore& b, int unit, int64_t first, int64_t count) {
  const auto access_a = a.BeginAccess(unit);
  const auto access_b = b.BeginAccess(unit);
  return std::memcmp(a.hi(unit) + first, b.hi(unit) + first, 2 * count) == 0 &&
         std::memcmp(a.lo(unit) + first, b.lo(unit) + first, 2 * count) == 0 &&
         std::memcmp(a.moment1(unit) + first, b.moment1(unit) + first, 4 * count) == 0 &&
         std::memcmp(a.moment2(unit) + first, b.moment2(unit) + first, 4 * count) == 0;
}

TEST(UpdateUnitTest, EqualsOneSpanPerTensorForEveryThreadCount) {
  const ModelLayout layout = Layout();
  for (int gradient_bytes : {4, 2}) {
    auto expected = FilledStore(layout, gradient_bytes);
    {
      const auto access = expected->BeginAccess(1);
      for (const TensorLayout& tensor : layout.units[1].tensors) {
        AdamWStep step = kStep;
        step.weight_decay = tensor.decays ? kStep.weight_decay : 0.0;
        const int64_t first = tensor.offset_elements;
        UpdateSpan({expected->hi(1) + first, expected->lo(1) + first, expected->moment1(1) + first,
                    expected->moment2(1) + first,
                    static_cast<char*>(expected->gradient(1)) + first * gradient_bytes,
                    gradient_bytes, tensor.element_count},
                   step);
      }
    }
    for (int threads : {1, 2, 3}) {
      auto store = FilledStore(layout, gradient_bytes);
      OptimizerPool pool(threads);
      UpdateUnit(layout, 1, kStep, *store, pool);
      EXPECT_TRUE(SameWeights(*store, *expected, 1, 0, layout.units[1].element_count));
      EXPECT_TRUE(SameWeights(*store, *expected, 0, 0, layout.units[0].element_count));
    }
  }
}

TEST(UpdateUnitTest, LeavesPaddingAlone) {
  const ModelLayout layout = Layout();
  auto store = FilledStore(layout, 4);
  auto before = FilledStore(layout, 4);
  OptimizerPool pool(2);
  UpdateUnit(layout, 1, kStep, *store, pool);
  EXPECT_TRUE(SameWeights(*store, *before, 1, 100, 92));
  EXPECT_TRUE(SameWeights(*store, *before, 1, 192 + 150'100, 44));
  EXPECT_FALSE(SameWeights(*store, *before, 1, 0, 100));
}

}  // namespace
}  // namespace megatrain
