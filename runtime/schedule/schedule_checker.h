// Proves that schedules, run one after another, are free of races and use what they mean to use.

#ifndef RUNTIME_SCHEDULE_SCHEDULE_CHECKER_H_
#define RUNTIME_SCHEDULE_SCHEDULE_CHECKER_H_

#include <span>

#include "absl/status/status.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// `steps` run in this order, each issued as soon as the one before is; they agree on layer_count,
// tied and slot counts (micro_batch_count, order and forward_only may differ). OK when
//  - every wait finds a record before it (of its own step, unless CrossesSteps), so nothing hangs,
//  - any two accesses to one resource of which one writes are ordered by stream order and waits,
//  - every operation finds in its slots, boundaries and accumulators the unit, version and
//    micro-batch that it means, and every unit is loaded, summed, copied and updated in full.
// Else FAILED_PRECONDITION that names the step, the operations and the resource.
absl::Status CheckSchedules(std::span<const Schedule> steps);

// A schedule that follows itself twice.
absl::Status CheckSchedule(const Schedule& schedule);

// The second and third of the properties apart: order alone, and contents in issue order alone.
absl::Status CheckOrder(std::span<const Schedule> steps);
absl::Status CheckContents(std::span<const Schedule> steps);

}  // namespace megatrain

#endif  // RUNTIME_SCHEDULE_SCHEDULE_CHECKER_H_
