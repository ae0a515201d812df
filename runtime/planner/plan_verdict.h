// What a plan says of itself in words.

#ifndef RUNTIME_PLANNER_PLAN_VERDICT_H_
#define RUNTIME_PLANNER_PLAN_VERDICT_H_

#include <functional>
#include <string>

#include "runtime/planner/machine.h"
#include "runtime/planner/planner.h"

namespace megatrain {

// Of Plan::device, where there is such a thing.
inline constexpr char kKeptGradients[] = "kept_gradients";

// A plan without its verdict, what it was made of, and whether other jobs on other machines fit.
struct VerdictRequest {
  const JobShape& shape;
  const MachineProfile& machine;
  const Plan& plan;
  std::function<bool(const JobShape&, const MachineProfile&)> fits;
};

// Plan::verdict: the memory it takes, or the binding limit and what would fit.
std::string FitVerdict(const VerdictRequest& request);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLAN_VERDICT_H_
