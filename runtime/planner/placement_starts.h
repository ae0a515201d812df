#ifndef RUNTIME_PLANNER_PLACEMENT_STARTS_H_
#define RUNTIME_PLANNER_PLACEMENT_STARTS_H_

#include <vector>

#include "runtime/planner/placement_choice.h"
#include "runtime/planner/placement_space.h"

namespace megatrain {

// Where a search for a placement begins: orders, cuts and levels of keeping, without anything more
// on the device; larger micro-batches first. Not all of them fit. Pure.
std::vector<Choice> PlacementStarts(const PlacementSpace& space);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLACEMENT_STARTS_H_
