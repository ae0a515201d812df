// Why a plan is as it is: what lies where, what sets the length of a step, and what would shorten
// it. Pure; takes as long as three plans.

#ifndef RUNTIME_PLANNER_PLAN_EXPLANATION_H_
#define RUNTIME_PLANNER_PLAN_EXPLANATION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/planner/planner.h"

namespace megatrain {

// How many units (layers, embedding, head) or layers have a plane at a place.
struct PlanePlacement {
  std::string plane;  // weights, gradients, optimizer_states, updates, boundaries, activations
  // device, pinned_host, pageable_host. Of weights that stream pinned_host_once when they cross the
  // bus once a step, and else for every pass. Of updates device, host, bus. Of activations also
  // recomputed; device_attention and device_projections, of which the rest is recomputed; and by
  // micro-batch device_and_pinned_host, partly_pinned_host and partly_device_and_pinned_host, of
  // which the rest is recomputed, and the same three of pageable_host.
  std::string place;
  int64_t unit_count = 0;
};

// What a step would gain from more of a resource.
struct ResourceGain {
  std::string resource;  // device_memory, host_memory, device_bandwidth, bus_bandwidth, compute,
                         // host_updates
  std::string amount;    // such as "16 GiB more"
  double saved_seconds = 0;
};

struct PlanExplanation {
  std::vector<PlanePlacement> planes;
  std::string binding_resource;     // a Resource's name; empty when no step is predicted
  std::vector<ResourceGain> gains;  // the largest first, without those not worth a word
};

// `plan` is PlanJob of the other three.
PlanExplanation ExplainPlan(const ModelConfig& config, const JobShape& shape,
                            const MachineProfile& machine, const Plan& plan);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLAN_EXPLANATION_H_
