#include "runtime/pipeline/placements_for_test.h"

#include <algorithm>
#include <cstdint>

#include "runtime/pipeline/small_training.h"

namespace megatrain {
namespace {

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;

// Of six units: on the device the ends, a layer in the middle, all but one layer, all; over the bus
// all, the layers beside the host's and the device's, all and some with their gradients kept, and
// all without their weights.
std::vector<std::vector<UpdatePlacement>> SomeUpdates() {
  return {
      {kDevice, kHost, kHost, kHost, kHost, kDevice},
      {kHost, kHost, kDevice, kHost, kHost, kHost},
      {kDevice, kDevice, kDevice, kHost, kDevice, kDevice},
      {kDevice, kDevice, kDevice, kDevice, kDevice, kDevice},
      {kOverBus, kOverBus, kOverBus, kOverBus, kOverBus, kOverBus},
      {kHost, kOverBus, kDevice, kOverBusResident, kOverBus, kHost},
      {kOverBusKeptGradient, kOverBusKeptGradient, kOverBusKeptGradient, kOverBusKeptGradient,
       kOverBusKeptGradient, kOverBusKeptGradient},
      {kHost, kOverBusKeptGradient, kOverBus, kOverBusKeptGradient, kDevice, kOverBusKeptGradient},
      {kOverBusResident, kOverBusResident, kOverBusResident, kOverBusResident, kOverBusResident,
       kOverBusResident}};
}

std::vector<KeepLevel> SomeKept() {
  return {KeepLevel::kNothing, KeepLevel::kProducts,  KeepLevel::kNothing,
          KeepLevel::kAll,     KeepLevel::kAttention, KeepLevel::kNothing};
}

// Numbers of slots, and places of updates.
void AddSlotsAndUpdates(bool tied, ComputeDtype dtype, MicroBatchOrder order,
                        std::vector<Placement>& placements) {
  for (const int slots : {1, 2, 3}) {
    placements.push_back({tied, dtype, order, slots, slots, false, 1 + slots % 2});
  }
  placements.push_back({tied, dtype, order, 1, 1, true, 2});
  for (const std::vector<UpdatePlacement>& updates : SomeUpdates()) {
    placements.push_back({tied, dtype, order, 2, 1, false, 2, updates, SomeKept(),
                          1 + static_cast<int>(placements.size() % 3)});
  }
}

// What layers leave goes to the host: boundaries alone, what they keep alone, both, of all layers
// or of some.
void AddStashing(bool tied, ComputeDtype dtype, std::vector<Placement>& placements) {
  const std::vector<bool> all(6, true);
  const std::vector<bool> some = {false, true, false, true, true, false};
  const std::vector<KeepLevel> everything(6, KeepLevel::kProducts);
  Placement base = {.tied = tied, .dtype = dtype, .threads = 2};
  const auto add = [&](int slots, const std::vector<KeepLevel>& keep,
                       const std::vector<bool>& boundaries, const std::vector<bool>& kept) {
    base.stash_slots = slots;
    base.keep = keep;
    base.boundary_on_host = boundaries;
    base.kept_on_host = kept;
    placements.push_back(base);
  };
  for (const int slots : {1, 2, 5}) {
    base.weight_slots = slots;
    add(slots, {}, all, {});
    add(slots, everything, all, all);
    add(slots, SomeKept(), some, all);
    add(slots, everything, {}, some);
  }
  base.kept_places = SpreadKeptPlaces(kSmallMicroBatches, /*on_host=*/2, /*on_device=*/1);
  add(2, everything, some, all);
  base.updates = {kDevice, kHost, kOverBusResident, kOverBusKeptGradient, kOverBus, kHost};
  add(2, SomeKept(), some, some);
  base.updates = {};
  base.resident = true;
  add(3, everything, some, all);
}

}  // namespace

std::string Describe(const Placement& p) {
  return "tied " + std::to_string(p.tied) + " bf16 " +
         std::to_string(p.dtype == ComputeDtype::kBfloat16) + " order " +
         std::to_string(static_cast<int>(p.order)) + " weight slots " +
         std::to_string(p.weight_slots) + " gradient slots " + std::to_string(p.gradient_slots) +
         " resident " + std::to_string(p.resident) + " threads " + std::to_string(p.threads) +
         " units on the device " +
         std::to_string(std::count(p.updates.begin(), p.updates.end(), kDevice)) +
         " over the bus " +
         std::to_string(std::count_if(p.updates.begin(), p.updates.end(), PassesOverBus)) +
         " through " + std::to_string(p.staging_slots) + " keeps " +
         std::to_string(!p.keep.empty()) + " boundaries on the host " +
         std::to_string(std::count(p.boundary_on_host.begin(), p.boundary_on_host.end(), true)) +
         " kept there " +
         std::to_string(std::count(p.kept_on_host.begin(), p.kept_on_host.end(), true)) +
         " by micro-batch " + std::to_string(!p.kept_places.empty()) + " stash slots " +
         std::to_string(p.stash_slots) + " pin " + std::to_string(static_cast<int>(p.pin)) +
         " slabs of " + std::to_string(p.slab_bytes);
}

Placement RandomPlacement(std::mt19937& random) {
  const auto draw = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
  };
  Placement p = {.tied = draw(0, 1) == 1,
                 .dtype = draw(0, 1) == 1 ? ComputeDtype::kBfloat16 : ComputeDtype::kFloat32,
                 .weight_slots = draw(1, 4),
                 .gradient_slots = draw(1, 4),
                 .threads = draw(1, 2),
                 .stash_slots = draw(1, 6),
                 .pin = draw(0, 1) == 1 ? PinMode::kSlabs : PinMode::kAuto,
                 .slab_bytes = draw(0, 1) == 1 ? draw(64, 1000) : kSlabBytes};
  for (int m = 0; m < kSmallMicroBatches && draw(0, 1) == 1; ++m) {
    p.kept_places.resize(kSmallMicroBatches);
    p.kept_places[m] = static_cast<KeptPlace>(draw(0, 2));
  }
  p.staging_slots = draw(1, 4);
  const bool some_by_device = draw(0, 1) == 0;
  constexpr UpdatePlacement kAll[] = {kHost, kDevice, kOverBus, kOverBusKeptGradient,
                                      kOverBusResident};
  for (int unit = 0; unit < 6; ++unit) {
    p.updates.push_back(some_by_device ? kAll[draw(0, 4)] : kHost);
    p.keep.push_back(static_cast<KeepLevel>(draw(0, kKeepLevelCount - 1)));
    p.boundary_on_host.push_back(draw(0, 2) > 0);
    p.kept_on_host.push_back(draw(0, 2) > 0);
  }
  return p;
}

std::vector<Placement> AllPlacements() {
  std::vector<Placement> placements;
  for (const bool tied : {false, true}) {
    for (const auto dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
      for (const auto order : {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
        AddSlotsAndUpdates(tied, dtype, order, placements);
      }
      AddStashing(tied, dtype, placements);
    }
  }
  const size_t count = placements.size();
  for (size_t i = 0; i < count; i += 5) {  // some of each kind through slabs too
    placements.push_back(placements[i]);
    placements.back().pin = PinMode::kSlabs;
    placements.back().slab_bytes = i % 2 == 0 ? kSlabBytes : 300;  // a copy takes one, or several
  }
  return placements;
}

}  // namespace megatrain
