#ifndef RUNTIME_BENCHMARK_GROUPED_PLACEMENT_H_
#define RUNTIME_BENCHMARK_GROUPED_PLACEMENT_H_

#include <cstdint>
#include <optional>

#include "runtime/config/model_config.h"
#include "runtime/planner/backend_memory.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/placement.h"

namespace megatrain {

// A placement for the units of GroupLayers(layout of `config`, size): that which the planner
// chooses for single layers that keep nothing, with each group where its first layer would be, and
// within the same device memory. Nothing is predicted. Absent when none fits.
std::optional<Placement> ChooseGroupedPlacement(const ModelConfig& config, int size,
                                                PlacementRequest request,
                                                const BackendMemory& memory,
                                                const MachineSpeeds& speeds);

// How many units of so many layers have memory, of which `fold_layers` layers shall; 0: all.
int FoldedUnits(int fold_layers, int size);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_GROUPED_PLACEMENT_H_
