// Steps of a schedule in predicted time: each stream does its operations in their order, waits for
// what they wait for, and shares the bus and the host's memory with the others. Pure.

#ifndef RUNTIME_PLANNER_STEP_SIMULATION_H_
#define RUNTIME_PLANNER_STEP_SIMULATION_H_

#include <array>
#include <functional>
#include <optional>

#include "runtime/device/stream_figures.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/operation_costs.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// A step in steady state: from the verdict on one step to the verdict on the next.
struct SimulatedStep {
  double seconds = 0;
  std::array<double, kResourceCount> busy_seconds = {};     // by Resource
  std::array<double, kWaitReasonCount> compute_waits = {};  // of the compute stream, by WaitReason
};

// Requires a schedule of BuildSchedule with its updates.
SimulatedStep SimulateStep(const Schedule& schedule,
                           const std::function<OperationCost(const Operation&)>& cost_of,
                           const MachineSpeeds& speeds);

// The same for a search: absent when it is not shorter than the limit, which often shows before
// anything is simulated.
std::optional<SimulatedStep> SimulateStepBelow(
    const Schedule& schedule, const std::function<OperationCost(const Operation&)>& cost_of,
    const MachineSpeeds& speeds, double limit_seconds);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_STEP_SIMULATION_H_
