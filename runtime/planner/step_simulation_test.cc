#include "runtime/planner/step_simulation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

// Costs by kind of operation; host bytes only where a test limits them.
struct Costs {
  double load = 0;
  double forward = 0;
  double backward = 0;
  double download = 0;
  double update = 0;
  double load_host_bytes = 0;
  double update_host_bytes = 0;

  OperationCost operator()(const Operation& operation) const {
    switch (operation.kind) {
      case OperationKind::kLoadWeights:
        return {Resource::kBusUp, load, load_host_bytes};
      case OperationKind::kLayerForward:
        return {Resource::kCompute, forward, 0};
      case OperationKind::kLayerBackward:
        return {Resource::kCompute, backward, 0};
      case OperationKind::kDownloadGradients:
        return {Resource::kBusDown, download, 0};
      case OperationKind::kUpdate:
        return {Resource::kHostUpdates, update, update_host_bytes};
      default:
        return {};
    }
  }
};

// Eight layers and the two ends, whose loads, downloads and updates cost what a layer's do.
SimulatedStep Simulate(const Costs& costs, const MachineSpeeds& speeds = {}) {
  const Schedule schedule =
      BuildSchedule({.layer_count = 8, .weight_slot_count = 2, .gradient_slot_count = 2}).value();
  return SimulateStep(schedule, costs, speeds);
}

double BusyOf(const SimulatedStep& step, Resource resource) {
  return step.busy_seconds[static_cast<int>(resource)];
}

TEST(StepSimulationTest, ComputeAloneIsTheStep) {
  const SimulatedStep step = Simulate({.forward = 1, .backward = 2});
  EXPECT_NEAR(step.seconds, 24, 1e-9);
  EXPECT_NEAR(BusyOf(step, Resource::kCompute), 24, 1e-9);
}

TEST(StepSimulationTest, WhatIsShorterThanComputeHides) {
  const SimulatedStep step =
      Simulate({.load = 0.2, .forward = 1, .backward = 2, .download = 0.2, .update = 0.2});
  EXPECT_GT(step.seconds, 24);
  EXPECT_LT(step.seconds, 25.5);  // the ends: the last gradients, the first update and load
  // Ten units load in forward; backward finds the last two layers still there.
  EXPECT_NEAR(BusyOf(step, Resource::kBusUp), 0.2 * (10 + 6), 0.21);
  EXPECT_NEAR(BusyOf(step, Resource::kHostUpdates), 2, 1e-9);
}

TEST(StepSimulationTest, WhatRunsBesideLayersSlowsThem) {
  const Costs compute{.forward = 1, .backward = 2};
  Costs beside = compute;
  beside.load = 0.9;  // nearly all of forward, and the half of backward
  const SimulatedStep step = Simulate(beside);
  const double slowed = BusyOf(step, Resource::kCompute) - 24;
  EXPECT_NEAR(slowed, 0.05 * BusyOf(step, Resource::kBusUp), 0.1);
  beside.update = 0.9;
  EXPECT_GT(BusyOf(Simulate(beside), Resource::kCompute), 24 + slowed + 0.2);
}

TEST(StepSimulationTest, TheBusIsTheStepWhenItIsSlower) {
  const SimulatedStep step = Simulate({.load = 3, .forward = 1, .backward = 2});
  EXPECT_NEAR(step.seconds, BusyOf(step, Resource::kBusUp), 4);
  EXPECT_GT(step.seconds, 3 * 16 - 1);
  EXPECT_GT(step.compute_waits[static_cast<int>(WaitReason::kWeightsReady)], 15);
}

TEST(StepSimulationTest, HostUpdatesDelayTheNextForwardOnly) {
  // Ten updates of 2 s against eight layers of 1 s forward: unit u's forward waits for u updates.
  const SimulatedStep step = Simulate({.forward = 1, .backward = 2, .update = 2});
  EXPECT_NEAR(step.seconds, 16 + 2 * 9 + 1, 2.1);
}

TEST(StepSimulationTest, CopiesBothWaysShareTheBus) {
  const Costs costs{.load = 2, .forward = 1, .backward = 2, .download = 2};
  MachineSpeeds speeds;
  const double alone = Simulate(costs, speeds).seconds;
  speeds.bus_both_bytes = speeds.bus_up_bytes / 2;
  EXPECT_GT(Simulate(costs, speeds).seconds, alone + 3);
}

// Weights of the next layers and states of passing units, both on their way to the device.
TEST(StepSimulationTest, WhatStreamsShareIsNotBusyTwice) {
  std::vector<UpdatePlacement> updates(10, UpdatePlacement::kHost);
  std::fill(updates.begin() + 5, updates.end(), UpdatePlacement::kOverBus);
  const Schedule schedule = BuildSchedule({.layer_count = 8,
                                           .weight_slot_count = 2,
                                           .gradient_slot_count = 2,
                                           .updates = std::move(updates),
                                           .state_chunks = std::vector<int>(10, 2)})
                                .value();
  const Costs costs{.load = 2, .forward = 1, .backward = 2};
  const auto cost_of = [&](const Operation& operation) -> OperationCost {
    return operation.kind == OperationKind::kLoadState ? OperationCost{Resource::kBusUp, 2, 0}
                                                       : costs(operation);
  };
  const SimulatedStep step = SimulateStep(schedule, cost_of, {});
  double work = 0;
  for (const Operation& operation : schedule.operations) {
    const OperationCost cost = cost_of(operation);
    work += cost.resource == Resource::kBusUp ? cost.seconds : 0;
  }
  EXPECT_NEAR(BusyOf(step, Resource::kBusUp), work, 1e-9);
  EXPECT_LE(BusyOf(step, Resource::kBusUp), step.seconds);
}

TEST(StepSimulationTest, UpdatesAndCopiesShareTheHostsMemory) {
  Costs costs{.load = 1, .forward = 1, .backward = 2, .update = 1};
  const double alone = Simulate(costs).seconds;
  costs.load_host_bytes = 100e9;
  costs.update_host_bytes = 200e9;
  MachineSpeeds speeds;
  speeds.host_memory_bytes = 150e9;  // of 300 a second that both want
  EXPECT_GT(Simulate(costs, speeds).seconds, alone + 3);
  speeds.host_memory_bytes = 300e9;
  EXPECT_NEAR(Simulate(costs, speeds).seconds, alone, 1e-9);
}

}  // namespace
}  // namespace megatrain
