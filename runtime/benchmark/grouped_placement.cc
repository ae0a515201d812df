#include "runtime/benchmark/grouped_placement.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/model/layer_groups.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"

namespace megatrain {
namespace {

// Of embedding, first layers of groups, head.
template <typename T>
std::vector<T> OfGroups(const std::vector<T>& by_unit, int size) {
  std::vector<T> by_group;
  for (size_t unit = 0; unit < by_unit.size(); ++unit) {
    const bool is_layer = unit > 0 && unit + 1 < by_unit.size();
    if (!is_layer || (unit - 1) % size == 0) {
      by_group.push_back(by_unit[unit]);
    }
  }
  return by_group;
}

PipelineOptions Grouped(PipelineOptions options, int size, int64_t boundary_token_bytes) {
  options.updates = OfGroups(options.updates, size);
  options.keep = OfGroups(options.keep, size);
  options.boundary_on_host = OfGroups(options.boundary_on_host, size);
  options.kept_on_host = {};
  options.kept_places = {};
  options.fold_stash_layers = FoldedUnits(options.fold_stash_layers, size);
  options.workspace_bytes +=
      GroupWorkspaceBytes(size, options.max_micro_batch_tokens, boundary_token_bytes);
  return options;
}

}  // namespace

int FoldedUnits(int fold_layers, int size) {
  return fold_layers == 0 ? 0 : std::max(fold_layers / size, 1);
}

std::optional<Placement> ChooseGroupedPlacement(const ModelConfig& config, int size,
                                                PlacementRequest request,
                                                const BackendMemory& memory,
                                                const MachineSpeeds& speeds) {
  const ModelLayout layers = MakeModelLayout(config);
  const ModelLayout groups = GroupLayers(layers, size);
  const int64_t device_bytes = request.device_bytes;
  request.order = MicroBatchOrder::kLayerMajor;
  request.keep_level = KeepLevel::kNothing;
  request.host_kept_micro_batches = 0;
  while (true) {
    std::optional<Placement> placement = ChoosePlacement(config, layers, request, memory, speeds);
    if (!placement) {
      return std::nullopt;
    }
    placement->pipeline = Grouped(std::move(placement->pipeline), size,
                                  config.hidden_size * SizeBytes(request.compute_dtype));
    placement->predicted = {};
    const int64_t excess =
        MapDeviceMemory(groups, placement->pipeline).bytes.total() - device_bytes;
    if (excess <= 0) {
      return placement;
    }
    request.device_bytes -= excess;
  }
}

}  // namespace megatrain
