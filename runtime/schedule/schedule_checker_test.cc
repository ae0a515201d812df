#include "runtime/schedule/schedule_checker.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;

constexpr uint32_t kSeed = 20260204;  // change it to draw other shapes

int Draw(std::mt19937& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
}

// Boundaries and what layers keep of few, many or all layers go to the host.
void DrawStash(std::mt19937& random, ScheduleShape& shape) {
  const int boundaries = Draw(random, 0, 4);
  const int kept = Draw(random, 0, 4);
  for (int unit = 0; unit < shape.unit_count(); ++unit) {
    shape.boundary_on_host.push_back(Draw(random, 1, 4) <= boundaries);
    shape.kept_on_host.push_back(Draw(random, 1, 4) <= kept);
  }
  if (Draw(random, 0, 1) == 1) {
    for (int m = 0; m < 4; ++m) {
      shape.kept_places.push_back(static_cast<KeptPlace>(Draw(random, 0, 2)));
    }
  }
  shape.stash_slot_count = Draw(random, 1, 5);
}

ScheduleShape DrawShape(std::mt19937& random, int layer_limit, int micro_batch_limit) {
  ScheduleShape shape = {.layer_count = Draw(random, 1, layer_limit),
                         .tied = Draw(random, 0, 1) == 1,
                         .micro_batch_count = Draw(random, 1, micro_batch_limit),
                         .order = Draw(random, 0, 1) == 1 ? MicroBatchOrder::kLayerMajor
                                                          : MicroBatchOrder::kMicroBatchMajor,
                         .weight_slot_count = Draw(random, 1, layer_limit + 1),
                         .gradient_slot_count = Draw(random, 1, 4)};
  if (shape.order == MicroBatchOrder::kLayerMajor && Draw(random, 0, 2) > 0) {
    DrawStash(random, shape);
  }
  // Of ten shapes, about four leave all units to the host and one leaves none.
  const int share = std::max(0, Draw(random, -4, 5));
  const bool mixes = Draw(random, 0, 1) == 1;  // else they are all updated at one place
  const UpdatePlacement same = Draw(random, 0, 1) == 1 ? kDevice : kOverBus;
  constexpr UpdatePlacement kOthers[] = {kDevice, kOverBus, kOverBusKeptGradient, kOverBusResident};
  for (int unit = 0; unit < shape.unit_count() && share > 0; ++unit) {
    const UpdatePlacement other = mixes ? kOthers[Draw(random, 0, 3)] : same;
    shape.updates.push_back(Draw(random, 1, 5) <= share ? other : kHost);
    shape.state_chunks.push_back(PassesOverBus(shape.updates.back()) ? Draw(random, 1, 3) : 0);
  }
  shape.staging_slot_count = Draw(random, 1, 4);
  return shape;
}

// Three steps of one placement: each may be an evaluation or have other micro-batches.
std::vector<Schedule> DrawSteps(std::mt19937& random, int layer_limit, int micro_batch_limit) {
  ScheduleShape shape = DrawShape(random, layer_limit, micro_batch_limit);
  std::vector<Schedule> steps;
  for (int i = 0; i < 3; ++i) {
    shape.micro_batch_count = Draw(random, 1, micro_batch_limit);
    shape.forward_only = Draw(random, 0, 3) == 0;
    steps.push_back(*BuildSchedule(shape));
  }
  return steps;
}

std::string Describe(const ScheduleShape& s) {
  return "layers " + std::to_string(s.layer_count) + " tied " + std::to_string(s.tied) +
         " micro-batches " + std::to_string(s.micro_batch_count) + " order " +
         std::to_string(static_cast<int>(s.order)) + " weight slots " +
         std::to_string(s.weight_slot_count) + " gradient slots " +
         std::to_string(s.gradient_slot_count) + " forward only " + std::to_string(s.forward_only) +
         " streamed layers " + std::to_string(s.streamed_layer_count()) + " boundaries on host " +
         std::to_string(std::count(s.boundary_on_host.begin(), s.boundary_on_host.end(), true)) +
         " kept on host " +
         std::to_string(std::count(s.kept_on_host.begin(), s.kept_on_host.end(), true)) +
         " stash slots " + std::to_string(s.stash_slot_count) + " over the bus " +
         std::to_string(std::count_if(s.updates.begin(), s.updates.end(), PassesOverBus)) +
         " staging slots " + std::to_string(s.staging_slot_count);
}

TEST(ScheduleCheckerTest, TenThousandRandomShapesPass) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  for (int i = 0; i < 10'000; ++i) {
    const ScheduleShape shape = DrawShape(random, 12, 4);
    const absl::Status status = CheckSchedule(*BuildSchedule(shape));
    ASSERT_TRUE(status.ok()) << Describe(shape) << ": " << status;
  }
}

TEST(ScheduleCheckerTest, StepsAndEvaluationsOfAnySizeFollowEachOther) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  for (int i = 0; i < 2'000; ++i) {
    const std::vector<Schedule> steps = DrawSteps(random, 8, 4);
    const absl::Status status = CheckSchedules(steps);
    ASSERT_TRUE(status.ok()) << Describe(steps[0].shape) << ": " << status;
  }
}

// Happens-before by plain search over the graph of the unrolled steps: apart from the checker's
// vector clocks on purpose.
class Reachability {
 public:
  explicit Reachability(const std::vector<Schedule>& steps) {
    std::map<StreamKind, int> last_of_stream;
    std::map<std::pair<EventKind, int>, int> last_record;
    for (const Schedule& step : steps) {
      first_.push_back(static_cast<int>(edges_.size()));
      for (const Operation& operation : step.operations) {
        const int node = static_cast<int>(edges_.size());
        std::vector<Edge>& edges = edges_.emplace_back();
        if (const auto found = last_of_stream.find(operation.stream);
            found != last_of_stream.end()) {
          edges.push_back({found->second, -1});
        }
        int wait_index = 0;
        for (const EventKey& wait : operation.waits) {
          if (const auto found = last_record.find({wait.kind, wait.index});
              found != last_record.end()) {
            edges.push_back({found->second, wait_index});
          }
          ++wait_index;
        }
        last_of_stream[operation.stream] = node;
        for (const EventKey& record : operation.records) {
          last_record[{record.kind, record.index}] = node;
        }
      }
    }
  }

  int Node(int step, int operation) const { return first_[step] + operation; }

  // Whether what the wait of the node is for comes before the node even without it.
  bool Implies(int node, int wait) const {
    for (const Edge& edge : edges_[node]) {
      if (edge.wait == wait) {
        return ReachesWithout(wait, edge.from, node);
      }
    }
    return true;  // it waits for nothing
  }

 private:
  struct Edge {
    int from;
    int wait;  // index of the wait that makes it, or -1
  };

  bool ReachesWithout(int wait, int from, int to) const {
    std::vector<bool> seen(edges_.size(), false);
    std::vector<int> open = {to};
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      for (const Edge& edge : edges_[node]) {
        if (edge.from < from || seen[edge.from] || (node == to && edge.wait == wait)) {
          continue;
        }
        if (edge.from == from) {
          return true;
        }
        seen[edge.from] = true;
        open.push_back(edge.from);
      }
    }
    return false;
  }

  std::vector<std::vector<Edge>> edges_;  // by node, to what comes right before it
  std::vector<int> first_;                // node of a step's first operation
};

struct DropCounts {
  int noticed = 0;
  int implied = 0;
};

EventKeys Without(const EventKeys& events, int index) {
  EventKeys others;
  for (int i = 0; i < events.size(); ++i) {
    if (i != index) {
      others.push_back(events.begin()[i]);
    }
  }
  return others;
}

// Drops every wait of the schedules, one at a time; checks that the checker's verdict is right.
void DropEveryWait(const std::vector<Schedule>& steps, DropCounts& counts) {
  const Reachability graph(steps);
  std::vector<Schedule> broken = steps;
  for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
    for (int i = 0; i < static_cast<int>(steps[step].operations.size()); ++i) {
      const EventKeys& waits = steps[step].operations[i].waits;
      for (int w = 0; w < waits.size(); ++w) {
        broken[step].operations[i].waits = Without(waits, w);
        const bool implied = graph.Implies(graph.Node(step, i), w);
        const absl::Status status = CheckSchedules(broken);
        ASSERT_EQ(status.ok(), implied)
            << Describe(steps[step].shape) << ": step " << step << " "
            << Describe(steps[step].operations[i]) << " without its wait for "
            << Describe(waits.begin()[w]) << ": " << status;
        (implied ? counts.implied : counts.noticed) += 1;
      }
      broken[step].operations[i].waits = waits;
    }
  }
}

TEST(ScheduleCheckerTest, NoticesEveryDroppedWaitThatOthersDoNotImply) {
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  DropCounts counts;
  for (int i = 0; i < 150 && !HasFatalFailure(); ++i) {
    const ScheduleShape shape = DrawShape(random, 5, 3);
    DropEveryWait(std::vector<Schedule>(3, *BuildSchedule(shape)), counts);
  }
  for (int i = 0; i < 150 && !HasFatalFailure(); ++i) {
    DropEveryWait(DrawSteps(random, 5, 3), counts);
  }
  std::cout << counts.noticed << " dropped waits noticed, " << counts.implied << " implied\n";
  EXPECT_GT(counts.noticed, 10'000);
}

// All layers stream but the first, which is on the device, and the fourth, which is there without
// its state.
Schedule Streamed() {
  return *BuildSchedule(
      {.layer_count = 5,
       .micro_batch_count = 2,
       .weight_slot_count = 2,
       .updates = {kHost, kDevice, kHost, kHost, kOverBusResident, kOverBus, kHost},
       .state_chunks = {0, 0, 0, 0, 2, 2, 0},
       .staging_slot_count = 2});
}

// Boundaries of all layers but the last go to the host, and what three of them keep.
Schedule Stashing() {
  return *BuildSchedule({.layer_count = 5,
                         .micro_batch_count = 2,
                         .weight_slot_count = 2,
                         .boundary_on_host = {false, true, true, true, true, false, false},
                         .kept_on_host = {false, false, true, true, false, true, false},
                         .stash_slot_count = 2});
}

Operation& Find(Schedule& schedule, OperationKind kind, int unit) {
  for (Operation& operation : schedule.operations) {
    if (operation.kind == kind && operation.unit == unit) {
      return operation;
    }
  }
  ADD_FAILURE() << "no such operation";
  return schedule.operations.front();
}

// How many there were.
int Erase(EventKind kind, EventKeys& events) {
  EventKeys others;
  for (const EventKey& event : events) {
    if (event.kind != kind) {
      others.push_back(event);
    }
  }
  const int count = events.size() - others.size();
  events = others;
  return count;
}

TEST(ScheduleCheckerTest, NamesBothOperationsAndTheResourceOfARace) {
  Schedule schedule = Streamed();
  Find(schedule, OperationKind::kLayerForward, 3).waits.clear();
  EXPECT_THAT(
      std::string(CheckSchedule(schedule).message()),
      testing::AllOf(HasSubstr("load_weights unit 3"),
                     HasSubstr("layer_forward unit 3 micro-batch 0"), HasSubstr("weight slot")));
}

TEST(ScheduleCheckerTest, NoticesAWaitThatNothingRecords) {
  Schedule in_step = Streamed();
  Find(in_step, OperationKind::kLayerForward, 1).waits.push_back({EventKind::kSlabFree, 7});
  EXPECT_THAT(std::string(CheckSchedule(in_step).message()), HasSubstr("slab_free[7]"));

  Schedule across_steps = Streamed();
  Find(across_steps, OperationKind::kLoadWeights, 2).waits.push_back({EventKind::kUnitUpdated, 9});
  EXPECT_THAT(std::string(CheckSchedule(across_steps).message()), HasSubstr("unit_updated[9]"));
}

TEST(ScheduleCheckerTest, NoticesAWaitWhoseRecordComesTooLate) {
  Schedule schedule = Streamed();
  // Two streams that would wait for each other.
  Find(schedule, OperationKind::kDownloadGradients, 5).records.clear();
  Find(schedule, OperationKind::kDownloadGradients, 3)
      .records.push_back({EventKind::kNormKnown, 0});
  Find(schedule, OperationKind::kFinalizeGradients, 5).waits.push_back({EventKind::kNormKnown, 0});
  EXPECT_THAT(std::string(CheckSchedule(schedule).message()), HasSubstr("norm_known"));
}

TEST(ScheduleCheckerTest, NoticesTheWrongUnitInASlot) {
  Schedule schedule = Streamed();
  Operation& forward = Find(schedule, OperationKind::kLayerForward, 3);
  forward.weight_slot = forward.weight_slot == 2 ? 3 : 2;
  EXPECT_THAT(std::string(CheckSchedule(schedule).message()), HasSubstr("does not hold unit 3"));
}

TEST(ScheduleCheckerTest, NoticesWeightsOfTheStepBefore) {
  // The second step goes on with what the first one left in its slot.
  Schedule schedule = *BuildSchedule({.layer_count = 1, .tied = true, .weight_slot_count = 1});
  for (Operation& operation : schedule.operations) {
    Erase(EventKind::kSlotFree, operation.records);
    Erase(EventKind::kSlotFree, operation.waits);
  }
  Schedule second = schedule;
  std::erase_if(second.operations, [](const Operation& operation) {
    return operation.kind == OperationKind::kLoadWeights;
  });
  const std::vector<Schedule> steps = {schedule, second};
  EXPECT_THAT(std::string(CheckContents(steps).message()), HasSubstr("old version of unit 0"));
}

TEST(ScheduleCheckerTest, NoticesWhatIsLeftOut) {
  for (const auto kind :
       {OperationKind::kEmbedForward, OperationKind::kLayerForward, OperationKind::kHead,
        OperationKind::kLayerBackward, OperationKind::kEmbedBackward,
        OperationKind::kFinalizeGradients, OperationKind::kDownloadGradients,
        OperationKind::kDownloadResults, OperationKind::kNorm, OperationKind::kUpdate,
        OperationKind::kUpdateOnDevice, OperationKind::kLoadState, OperationKind::kUpdateChunk,
        OperationKind::kStoreState, OperationKind::kLoadWeights, OperationKind::kStashActivations,
        OperationKind::kFetchActivations}) {
    const bool stashes =
        kind == OperationKind::kStashActivations || kind == OperationKind::kFetchActivations;
    const Schedule whole = stashes ? Stashing() : Streamed();
    for (size_t i = 0; i < whole.operations.size(); ++i) {
      if (whole.operations[i].kind == kind) {
        Schedule schedule = whole;
        schedule.operations.erase(schedule.operations.begin() + static_cast<int>(i));
        EXPECT_FALSE(CheckSchedule(schedule).ok()) << Describe(whole.operations[i]);
      }
    }
  }
}

TEST(ScheduleCheckerTest, NoticesActivationsOfAnotherLayerOrMicroBatch) {
  Schedule schedule = Stashing();
  Find(schedule, OperationKind::kLayerBackward, 3).stash_slot ^= 1;
  EXPECT_THAT(std::string(CheckContents(std::vector{schedule}).message()),
              HasSubstr("does not hold what the layer left"));

  Schedule early = Stashing();
  Operation& fetch = Find(early, OperationKind::kFetchActivations, 2);
  fetch.unit = 1;
  EXPECT_FALSE(CheckContents(std::vector{early}).ok());
}

TEST(ScheduleCheckerTest, NoticesABoundaryThatIsOverwrittenBeforeItHasLeft) {
  Schedule schedule = Stashing();
  // It writes where the output of the embedding lies, which is to be copied for layer 1.
  Operation& forward = Find(schedule, OperationKind::kLayerForward, 2);
  ASSERT_EQ(Erase(EventKind::kBoundaryFree, forward.waits), 1);
  EXPECT_THAT(
      std::string(CheckSchedule(schedule).message()),
      testing::AllOf(HasSubstr("stash_activations unit 1"), HasSubstr("layer_forward unit 2")));
}

TEST(ScheduleCheckerTest, NoticesAChunkInTheWrongStagingSlot) {
  Schedule updated = Streamed();
  Find(updated, OperationKind::kUpdateChunk, 4).staging_slot = 1;
  EXPECT_THAT(std::string(CheckSchedule(updated).message()), HasSubstr("update_chunk unit 4"));

  Schedule occupied = Streamed();
  Find(occupied, OperationKind::kLoadState, 5).staging_slot = 1;
  Find(occupied, OperationKind::kLoadState, 5).waits.clear();
  EXPECT_FALSE(CheckSchedule(occupied).ok());
}

TEST(ScheduleCheckerTest, NoticesWeightsThatAreReadBeforeTheirLastChunkIsUpdated) {
  Schedule schedule = Streamed();
  Find(schedule, OperationKind::kLayerForward, 4).waits.clear();
  EXPECT_THAT(std::string(CheckSchedule(schedule).message()),
              testing::AllOf(HasSubstr("update_chunk unit 4"), HasSubstr("weight slot")));
}

TEST(ScheduleCheckerTest, NoticesAnUnclearedGradientSlot) {
  Schedule schedule = Streamed();
  Find(schedule, OperationKind::kLayerBackward, 2).clears_gradient = false;
  EXPECT_THAT(std::string(CheckSchedule(schedule).message()), HasSubstr("clears"));
}

}  // namespace
}  // namespace megatrain
