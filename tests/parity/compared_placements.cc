#include "tests/parity/compared_placements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace megatrain {
namespace {

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;
constexpr auto kMicroBatchMajor = MicroBatchOrder::kMicroBatchMajor;

class List {
 public:
  explicit List(const ComparedModel& model) : model_(model) {}

  void Add(std::string name, RigOptions options, int steps_ahead = 1) {
    options.dtype = model_.dtype;
    options.max_tokens = model_.max_tokens;
    options.state_chunk_elements = model_.state_chunk_elements;
    options.slab_bytes = model_.slab_bytes;
    placements.push_back({std::move(name), std::move(options), steps_ahead});
  }

  std::vector<UpdatePlacement> Everywhere(UpdatePlacement placement) const {
    return std::vector<UpdatePlacement>(model_.unit_count, placement);
  }

  // By turns from the first unit on.
  std::vector<UpdatePlacement> Mixed(const std::vector<UpdatePlacement>& turns) const {
    std::vector<UpdatePlacement> updates;
    updates.reserve(model_.unit_count);
    for (int unit = 0; unit < model_.unit_count; ++unit) {
      updates.push_back(turns[unit % turns.size()]);
    }
    return updates;
  }

  std::vector<bool> All() const { return std::vector<bool>(model_.unit_count, true); }
  std::vector<bool> Some() const {
    std::vector<bool> some;
    some.reserve(model_.unit_count);
    for (int unit = 0; unit < model_.unit_count; ++unit) {
      some.push_back(unit % 3 != 2);
    }
    return some;
  }

  std::vector<ComparedPlacement> placements;

 private:
  const ComparedModel& model_;
};

// Every second one is of another kind, and the mixed ones are among them.
void AddPlaces(List& list) {
  list.Add("all weights on the device", {.resident = true});
  list.Add("micro-batch by micro-batch", {.order = kMicroBatchMajor, .weight_slots = 2});
  list.Add("all through one slot, no step ahead",
           {.weight_slots = 1, .gradient_slots = 1, .optimizer_threads = 1}, 0);
  list.Add("two ahead, through slabs",
           {.weight_slots = 3, .gradient_slots = 3, .pin = PinMode::kSlabs});
  list.Add("over the bus, through one slot",
           {.updates = list.Everywhere(kOverBus), .staging_slots = 1});
  list.Add("over the bus, gradients kept on the device",
           {.gradient_slots = 1, .updates = list.Everywhere(kOverBusKeptGradient)});
  list.Add("states on the device, micro-batch by micro-batch",
           {.order = kMicroBatchMajor, .updates = list.Everywhere(kDevice)});
  list.Add(
      "mixed, micro-batch by micro-batch",
      {.order = kMicroBatchMajor,
       .gradient_slots = 1,
       .updates = list.Mixed({kDevice, kOverBus, kHost, kOverBusResident, kOverBusKeptGradient})},
      0);
  list.Add(
      "states over the bus, weights resident, through slabs",
      {.updates = list.Everywhere(kOverBusResident), .staging_slots = 3, .pin = PinMode::kSlabs});
  list.Add("mixed updates, some boundaries on the host, through slabs",
           {.weight_slots = 1,
            .updates = list.Mixed({kOverBusResident, kHost, kOverBusKeptGradient, kOverBus}),
            .boundary_on_host = list.Some(),
            .stash_slots = 3,
            .pin = PinMode::kSlabs});
  list.Add("all boundaries on the host, one slot",
           {.boundary_on_host = list.All(), .stash_slots = 1});
}

void AddKept(List& list) {
  for (const KeepLevel level :
       {KeepLevel::kAttention, KeepLevel::kProjections, KeepLevel::kProducts, KeepLevel::kAll}) {
    const std::string name = " of level " + std::to_string(static_cast<int>(level));
    list.Add("kept on the device, micro-batch by micro-batch," + name,
             {.order = kMicroBatchMajor, .keep = level});
    list.Add("kept on the host," + name,
             {.keep = level, .boundary_on_host = list.Some(), .kept_on_host = list.All()});
    list.Add("kept by micro-batch, mixed updates, through slabs," + name,
             {.keep = level,
              .updates = list.Mixed({kDevice, kHost, kOverBus}),
              .boundary_on_host = list.All(),
              .kept_on_host = list.Some(),
              .kept_places = SpreadKeptPlaces(8, /*on_host=*/4, /*on_device=*/2),
              .stash_slots = 3,
              .pin = PinMode::kSlabs});
  }
}

}  // namespace

std::vector<ComparedPlacement> PlacementsToCompare(const ComparedModel& model) {
  List list(model);
  AddPlaces(list);
  if (model.keeps_activations) {
    AddKept(list);
  }
  std::vector<ComparedPlacement> some;
  for (size_t i = 0; i < list.placements.size(); i += model.every) {
    some.push_back(std::move(list.placements[i]));
  }
  return some;
}

void ExpectEqualTrainings(const std::vector<ComparedPlacement>& placements,
                          const std::function<Outcome(const ComparedPlacement&)>& train) {
  const Outcome want = train(placements.front());
  ASSERT_GT(want.losses.size(), 1u);
  EXPECT_TRUE(std::isfinite(want.losses.back()));
  EXPECT_NE(want.losses.front(), want.losses.back());
  for (size_t i = 1; i < placements.size(); ++i) {
    const Outcome got = train(placements[i]);
    EXPECT_EQ(got.losses, want.losses) << placements[i].name;
    EXPECT_EQ(got.norms, want.norms) << placements[i].name;
    EXPECT_TRUE(got.state == want.state) << placements[i].name;
    EXPECT_EQ(got.state_digests, want.state_digests) << placements[i].name;
  }
}

}  // namespace megatrain
