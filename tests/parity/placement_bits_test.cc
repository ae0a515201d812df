// The same training, bit for bit, wherever weights and gradients lie and whoever updates them.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/parity/compared_placements.h"
#include "tests/parity/toy_training.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

struct Case {
  bool tied;
  ComputeDtype dtype;
};

class PlacementBits : public ::testing::TestWithParam<Case> {};

TEST_P(PlacementBits, NothingDependsOnSlotsThreadsOrderOrResidence) {
  const ModelConfig config = ToyModelConfig(ToyFamily::kQwen2, GetParam().tied);
  const auto train = [&](const RigOptions& options) {
    return ToyOutcome(config, options, CpuBackendForTest(), {});
  };
  const Outcome want = train({.dtype = GetParam().dtype, .resident = true});
  ASSERT_FALSE(want.losses.empty());
  EXPECT_TRUE(std::isfinite(want.losses.back()));
  EXPECT_NE(want.losses.front(), want.losses.back());
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
    for (const int slots : {1, 2, 3}) {
      for (const int threads : {1, 2}) {
        const Outcome got = train({.dtype = GetParam().dtype,
                                   .order = order,
                                   .weight_slots = slots,
                                   .gradient_slots = slots,
                                   .optimizer_threads = threads});
        EXPECT_EQ(got.losses, want.losses);
        EXPECT_EQ(got.norms, want.norms);
        EXPECT_TRUE(got == want) << "order " << static_cast<int>(order) << ", " << slots
                                 << " slots, " << threads << " optimizer threads";
      }
    }
    EXPECT_TRUE(train({.dtype = GetParam().dtype, .order = order, .resident = true}) == want)
        << "resident, order " << static_cast<int>(order);
  }
}

TEST_P(PlacementBits, NothingDependsOnWhereBoundariesWait) {
  const ModelConfig config = ToyModelConfig(ToyFamily::kQwen2, GetParam().tied);
  const auto train = [&](const RigOptions& options) {
    return ToyOutcome(config, options, CpuBackendForTest(), {});
  };
  const Outcome want = train({.dtype = GetParam().dtype, .resident = true});
  const std::vector<bool> all(6, true);
  const std::vector<bool> some = {false, true, false, true, true, false};
  for (const std::vector<bool>& on_host : {all, some}) {
    for (const int slots : {1, 3}) {
      EXPECT_TRUE(
          train({.dtype = GetParam().dtype, .boundary_on_host = on_host, .stash_slots = slots}) ==
          want)
          << slots << " slots";
    }
  }
}

TEST_P(PlacementBits, NothingDependsOnWhereUpdatesRun) {
  constexpr auto kHost = UpdatePlacement::kHost;
  constexpr auto kDevice = UpdatePlacement::kDevice;
  constexpr auto kOverBus = UpdatePlacement::kOverBus;
  constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;
  constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;
  using Updates = std::vector<UpdatePlacement>;
  const ModelConfig config = ToyModelConfig(ToyFamily::kQwen2, GetParam().tied);
  const auto train = [&](const RigOptions& options) {
    return ToyOutcome(config, options, CpuBackendForTest(), {});
  };
  const Outcome want = train({.dtype = GetParam().dtype});
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
    for (const Updates& updates :
         {Updates(6, kDevice), Updates(6, kOverBus), Updates(6, kOverBusResident),
          Updates(6, kOverBusKeptGradient),
          Updates{kDevice, kOverBus, kHost, kOverBusResident, kOverBus, kHost}}) {
      for (const int slots : {1, 3}) {
        const Outcome got = train({.dtype = GetParam().dtype,
                                   .order = order,
                                   .updates = updates,
                                   .staging_slots = slots});
        EXPECT_TRUE(got == want) << "order " << static_cast<int>(order) << ", " << slots
                                 << " staging slots";
      }
    }
  }
}

TEST_P(PlacementBits, NothingDependsOnWhatThePlannerChooses) {
  const ModelConfig config = ToyModelConfig(ToyFamily::kQwen2, GetParam().tied);
  const ComparedModel model = {.unit_count = static_cast<int>(config.layer_count) + 2,
                               .dtype = GetParam().dtype};
  ExpectEqualTrainings(PlacementsToCompare(model), [&](const ComparedPlacement& placement) {
    return ToyOutcome(config, placement.options, CpuBackendForTest(),
                      {.steps_ahead = placement.steps_ahead});
  });
}

INSTANTIATE_TEST_SUITE_P(Models, PlacementBits,
                         ::testing::Values(Case{true, ComputeDtype::kFloat32},
                                           Case{false, ComputeDtype::kFloat32},
                                           Case{true, ComputeDtype::kBfloat16},
                                           Case{false, ComputeDtype::kBfloat16}));

}  // namespace
}  // namespace megatrain
