#include "runtime/benchmark/random_model.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/config/shapes.h"
#include "runtime/hoststore/split_float.h"

namespace megatrain {
namespace {

ModelLayout Layout() { return MakeModelLayout(*ShapeByName("tiny")); }

std::unique_ptr<HostStore> FilledStore(const ModelLayout& layout, int threads) {
  auto store = HostStore::Create(layout, {}).value();
  OptimizerPool pool(threads);
  FillRandomWeights(layout, /*seed=*/7, pool, *store);
  return store;
}

std::vector<float> Values(HostStore& store, int unit, const TensorLayout& tensor) {
  std::vector<float> values(tensor.element_count);
  JoinFloats(store.hi(unit) + tensor.offset_elements, store.lo(unit) + tensor.offset_elements,
             values);
  return values;
}

TEST(FillRandomWeightsTest, WeightsAreNormalAndNormsAreAroundOne) {
  const ModelLayout layout = Layout();
  const auto store = FilledStore(layout, 2);
  for (int unit = 0; unit < store->unit_count(); ++unit) {
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      const std::vector<float> values = Values(*store, unit, tensor);
      double sum = 0;
      for (const float value : values) {
        sum += value;
      }
      const double count = static_cast<double>(values.size());
      const double mean = sum / count;
      double squares = 0;
      for (const float value : values) {
        squares += (value - mean) * (value - mean);
      }
      const bool norm = tensor.name.find("norm") != std::string::npos;
      const double tolerance = 5 * 0.02 / std::sqrt(count);  // five standard errors
      EXPECT_NEAR(mean, norm ? 1 : 0, tolerance) << tensor.name;
      EXPECT_NEAR(std::sqrt(squares / count), 0.02, tolerance) << tensor.name;
    }
  }
}

TEST(FillRandomWeightsTest, TensorsDifferAndThreadsDoNotMatter) {
  const ModelLayout layout = Layout();
  const auto one = FilledStore(layout, 1);
  const auto four = FilledStore(layout, 4);
  const TensorLayout& first = *layout.units[1].Find(TensorRole::kGate);
  const TensorLayout& other = *layout.units[1].Find(TensorRole::kUp);
  EXPECT_EQ(Values(*one, 1, first), Values(*four, 1, first));
  EXPECT_NE(Values(*one, 1, first), Values(*one, 1, other));
  EXPECT_NE(Values(*one, 1, first), Values(*one, 2, first));
}

TEST(RandomStepTest, CutsRowsIntoMicroBatches) {
  const StepBatch step =
      RandomStep({.tokens = 44, .sequence_length = 8, .micro_batch_tokens = 20}, 512, 1).value();
  EXPECT_EQ(step.token_count, 44);
  EXPECT_EQ(step.loss_token_count, 5 * 7 + 3);
  ASSERT_EQ(step.micro_batches.size(), 3);
  EXPECT_EQ(step.micro_batches[0].document_offsets, (std::vector<int32_t>{0, 8, 16}));
  EXPECT_EQ(step.micro_batches[2].document_offsets, (std::vector<int32_t>{0, 8, 12}));
  EXPECT_EQ(step.micro_batches[2].positions[8], 0);
  for (const int32_t token : step.micro_batches[0].tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 512);
  }
}

TEST(RandomStepTest, ARowMustFitInAMicroBatch) {
  const BatchShape shape{.tokens = 64, .sequence_length = 32, .micro_batch_tokens = 31};
  EXPECT_EQ(RandomStep(shape, 512, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
