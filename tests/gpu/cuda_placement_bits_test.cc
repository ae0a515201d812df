// The same training on a GPU, bit for bit, wherever weights, gradients, activations and optimizer
// states lie, and whoever updates them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/layer_template.h"
#include "tests/gpu/cuda_backend_for_test.h"
#include "tests/parity/compared_placements.h"
#include "tests/parity/toy_training.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

constexpr MicroBatchOrder kOrders[] = {MicroBatchOrder::kLayerMajor,
                                       MicroBatchOrder::kMicroBatchMajor};
constexpr KeepLevel kKeepLevels[] = {KeepLevel::kNothing, KeepLevel::kAttention,
                                     KeepLevel::kProjections, KeepLevel::kProducts,
                                     KeepLevel::kAll};

constexpr uint32_t kSeed = 20261130;

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;
constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;

// Of embedding, four layers, head.
using Updates = std::vector<UpdatePlacement>;
const Updates kAllStates(6, kDevice);
const Updates kFirstStates = {kDevice, kDevice, kDevice, kHost, kHost, kDevice};
const Updates kMiddleStates = {kHost, kHost, kDevice, kDevice, kHost, kHost};

struct Case {
  ToyFamily family;
  bool tied;
  ComputeDtype dtype;
};

class CudaPlacementBits : public ::testing::TestWithParam<Case> {
 protected:
  // Fails where a placement's losses, norms or final state are not those of the resident one.
  void ExpectSameBits(RigOptions options, int steps_ahead, const std::string& what) {
    options.dtype = GetParam().dtype;
    const Outcome got = Train(options, steps_ahead);
    EXPECT_EQ(got.losses, want_.losses) << what;
    EXPECT_EQ(got.norms, want_.norms) << what;
    EXPECT_TRUE(got.state == want_.state) << what;
  }

  void SetUp() override {
    want_ = Train({.dtype = GetParam().dtype, .resident = true}, /*steps_ahead=*/1);
    ASSERT_FALSE(want_.losses.empty());
    EXPECT_TRUE(std::isfinite(want_.losses.back()));
    EXPECT_NE(want_.losses.front(), want_.losses.back());
  }

 private:
  static Outcome Train(const RigOptions& options, int steps_ahead) {
    return ToyOutcome(ToyModelConfig(GetParam().family, GetParam().tied), options,
                      CudaBackendForTest(), {.steps_ahead = steps_ahead});
  }

  Outcome want_;
};

TEST_P(CudaPlacementBits, SlotsOrderAndResidence) {
  for (const MicroBatchOrder order : kOrders) {
    for (const int slots : {1, 2, 3}) {
      ExpectSameBits({.order = order, .weight_slots = slots, .gradient_slots = slots}, 1,
                     std::to_string(slots) + " slots");
    }
    ExpectSameBits({.order = order, .weight_slots = 3, .gradient_slots = 1}, 0, "one gradient");
    ExpectSameBits({.order = order, .weight_slots = 1, .gradient_slots = 3}, 0, "one weight");
    ExpectSameBits({.order = order, .resident = true}, 0, "resident");
  }
}

TEST_P(CudaPlacementBits, StatesOnTheDevice) {
  for (const MicroBatchOrder order : kOrders) {
    for (const Updates& updates : {kAllStates, kFirstStates, kMiddleStates}) {
      ExpectSameBits({.order = order, .updates = updates}, 1, "states on the device");
    }
    ExpectSameBits({.order = order, .updates = kFirstStates}, 0, "no step ahead");
    ExpectSameBits({.order = order, .resident = true, .updates = kFirstStates}, 1,
                   "the others resident");
    ExpectSameBits({.order = order,
                    .weight_slots = 1,
                    .gradient_slots = 1,
                    .updates = kMiddleStates,
                    .optimizer_threads = 1},
                   1, "the others through one slot");
  }
}

TEST_P(CudaPlacementBits, UpdatesOverTheBus) {
  const Updates mixed = {kHost, kOverBus, kDevice, kOverBusResident, kOverBusKeptGradient, kHost};
  for (const MicroBatchOrder order : kOrders) {
    for (const Updates& updates : {Updates(6, kOverBus), Updates(6, kOverBusResident),
                                   Updates(6, kOverBusKeptGradient), mixed}) {
      for (const int slots : {1, 2, 4}) {
        ExpectSameBits({.order = order, .updates = updates, .staging_slots = slots}, 1,
                       "over the bus through " + std::to_string(slots) + " slots");
      }
      ExpectSameBits({.order = order,
                      .weight_slots = 1,
                      .gradient_slots = 1,
                      .updates = updates,
                      .state_chunk_elements = 1024,
                      .optimizer_threads = 1},
                     0, "over the bus in small chunks");
    }
  }
}

TEST_P(CudaPlacementBits, KeptActivations) {
  for (const MicroBatchOrder order : kOrders) {
    for (const KeepLevel keep : kKeepLevels) {
      ExpectSameBits({.order = order, .keep = keep}, 1,
                     "level " + std::to_string(static_cast<int>(keep)));
    }
    ExpectSameBits({.order = order, .keep = KeepLevel::kAll, .updates = kAllStates}, 0,
                   "all of it on the device");
  }
}

// Through pinned host memory and back, of all layers and of some.
TEST_P(CudaPlacementBits, ActivationsOnTheHost) {
  const std::vector<bool> none;
  const std::vector<bool> all(6, true);
  const std::vector<bool> some = {false, true, false, true, true, false};
  for (const KeepLevel keep : kKeepLevels) {
    for (const int slots : {1, 2, 4}) {
      ExpectSameBits(
          {.keep = keep, .boundary_on_host = all, .kept_on_host = all, .stash_slots = slots}, 1,
          "all, " + std::to_string(slots) + " slots");
      ExpectSameBits({.weight_slots = slots,
                      .keep = keep,
                      .boundary_on_host = some,
                      .kept_on_host = all,
                      .stash_slots = slots},
                     0, "some boundaries, " + std::to_string(slots) + " slots");
    }
    ExpectSameBits({.keep = keep, .boundary_on_host = all, .kept_on_host = none}, 1, "boundaries");
    ExpectSameBits({.resident = true, .keep = keep, .boundary_on_host = none, .kept_on_host = some},
                   1, "what some layers keep");
    ExpectSameBits({.keep = keep,
                    .boundary_on_host = some,
                    .kept_on_host = all,
                    .kept_places = SpreadKeptPlaces(8, /*on_host=*/4, /*on_device=*/2),
                    .stash_slots = 3},
                   1, "by micro-batch");
    ExpectSameBits({.keep = keep,
                    .updates = kMiddleStates,
                    .boundary_on_host = some,
                    .kept_on_host = some,
                    .stash_slots = 3},
                   1, "some states on the device");
  }
}

// Micro-batches that keep here, there and nowhere, in any order; all of it pinned, and all of it in
// many slabs a copy.
TEST_P(CudaPlacementBits, KeptByMicroBatch) {
  using enum KeptPlace;
  std::mt19937 random(kSeed);
  std::vector<std::vector<KeptPlace>> mixes = {
      {kHost, kDevice, kHost, kDevice, kHost, kDevice, kHost, kDevice},
      {kDevice, kNowhere, kHost, kHost, kDevice, kHost, kNowhere, kDevice}};
  std::vector<KeptPlace>& drawn = mixes.emplace_back();
  for (int micro_batch = 0; micro_batch < 8; ++micro_batch) {
    drawn.push_back(static_cast<KeptPlace>(random() % 3));
  }
  for (size_t mix = 0; mix < mixes.size(); ++mix) {
    for (const PinMode pin : {PinMode::kAuto, PinMode::kSlabs}) {
      for (const int slots : {1, 3}) {
        ExpectSameBits({.keep = slots == 1 ? KeepLevel::kAttention : KeepLevel::kAll,
                        .updates = mix == 1 ? kMiddleStates : Updates(),
                        .boundary_on_host = std::vector<bool>(6, slots == 3),
                        .kept_on_host = std::vector<bool>(6, true),
                        .kept_places = mixes[mix],
                        .stash_slots = slots,
                        .pin = pin,
                        .slab_bytes = 3000},
                       1, "mix " + std::to_string(mix) + ", seed " + std::to_string(kSeed));
      }
    }
  }
}

// Updates of every kind with their states in many slabs a copy.
TEST_P(CudaPlacementBits, StatesThroughManySlabs) {
  for (const Updates& updates : {Updates(6, kOverBus), Updates(6, kOverBusKeptGradient),
                                 Updates(6, kOverBusResident), kAllStates, kFirstStates}) {
    ExpectSameBits({.updates = updates, .pin = PinMode::kSlabs, .slab_bytes = 3000}, 1,
                   "states in slabs");
  }
}

// Slabs too, and mixes.
TEST_P(CudaPlacementBits, WhatThePlannerChooses) {
  const ModelConfig config = ToyModelConfig(GetParam().family, GetParam().tied);
  const ComparedModel model = {.unit_count = static_cast<int>(config.layer_count) + 2,
                               .dtype = GetParam().dtype,
                               .keeps_activations = true};
  ExpectEqualTrainings(PlacementsToCompare(model), [&](const ComparedPlacement& placement) {
    return ToyOutcome(config, placement.options, CudaBackendForTest(),
                      {.steps_ahead = placement.steps_ahead});
  });
}

INSTANTIATE_TEST_SUITE_P(Models, CudaPlacementBits,
                         ::testing::Values(Case{ToyFamily::kQwen2, true, ComputeDtype::kFloat32},
                                           Case{ToyFamily::kLlama, false, ComputeDtype::kFloat32},
                                           Case{ToyFamily::kLlama, true, ComputeDtype::kBfloat16},
                                           Case{ToyFamily::kQwen2, false, ComputeDtype::kBfloat16}),
                         [](const auto& info) {
                           return std::string(info.param.family == ToyFamily::kQwen2 ? "Qwen2"
                                                                                     : "Llama") +
                                  (info.param.tied ? "Tied" : "Untied") +
                                  (info.param.dtype == ComputeDtype::kBfloat16 ? "Bf16" : "Fp32");
                         });

}  // namespace
}  // namespace megatrain
