// The end of a step's schedule: its updates. Private to this package.

#ifndef RUNTIME_SCHEDULE_UPDATE_OPERATIONS_H_
#define RUNTIME_SCHEDULE_UPDATE_OPERATIONS_H_

#include <vector>

#include "absl/status/status.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// INVALID_ARGUMENT when `updates` names another number of units, or what passes over the bus has no
// staging slot or no chunks.
absl::Status CheckUpdates(const ScheduleShape& shape);

// Appends the updates of all units to operations whose last one is kNorm, in the order in which the
// next forward needs the units. An update on the device need not be waited for where the next step
// first adds to the unit's gradient: forward waits for it before.
void AppendUpdates(const ScheduleShape& shape, std::vector<Operation>& operations);

}  // namespace megatrain

#endif  // RUNTIME_SCHEDULE_UPDATE_OPERATIONS_H_
