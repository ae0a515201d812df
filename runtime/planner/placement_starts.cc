#include "runtime/planner/placement_starts.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"
#include "runtime/planner/placement_request.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

constexpr std::array kKeepLevels = {KeepLevel::kProducts, KeepLevel::kProjections,
                                    KeepLevel::kAttention, KeepLevel::kNothing};

// Of a start in layer-major order, the boundaries that the device has no room for.
int FewestOnHost(Choice start, const PlacementSpace& space) {
  const int layers = space.subject().layout.layer_count();
  const auto excess_of = [&](int on_device) {
    start.host_boundary_layers = layers - on_device;
    return space.ExcessesOf(start).device;
  };
  return layers - LargestThatFits(0, layers, excess_of(0), excess_of);
}

// Of the same, the boundaries that the host has room for.
int MostOnHost(Choice start, const PlacementSpace& space) {
  const auto excess_of = [&](int on_host) {
    start.host_boundary_layers = on_host;
    return space.ExcessesOf(start).host;
  };
  return LargestThatFits(0, space.subject().layout.layer_count(), excess_of(0), excess_of);
}

// Adds the least choice. In layer-major order also with boundaries on the host, and with parts of
// what layers keep: each alone costs slots that only several of them are worth.
void AddStarts(const Choice& least, const PlacementSpace& space, std::vector<Choice>& starts) {
  const PlacementRequest& request = space.request();
  const ModelLayout& layout = space.subject().layout;
  const bool stashes = least.order == MicroBatchOrder::kLayerMajor;
  for (const bool fewest : {true, false}) {
    for (const int64_t share : {0, 1, 2}) {  // thirds of the micro-batches
      Choice start = least;
      if (stashes && !request.host_kept_micro_batches && !request.keep_level) {
        start.host_kept_micro_batches =
            static_cast<int>(space.MicroBatches(start.micro_batch_rows) * share / 3);
      }
      if (stashes && !request.host_boundary_layers) {
        start.host_boundary_layers = fewest ? FewestOnHost(start, space) : MostOnHost(start, space);
      }
      const Choice canonical = Canonical(start, layout);
      if (std::none_of(starts.begin(), starts.end(), [&](const Choice& other) {
            return Canonical(other, layout) == canonical;
          })) {
        starts.push_back(start);
      }
    }
  }
}

}  // namespace

std::vector<Choice> PlacementStarts(const PlacementSpace& space) {
  const PlacementRequest& request = space.request();
  std::vector<KeepLevel> levels(kKeepLevels.begin(), kKeepLevels.end());
  if (request.keep_level) {
    levels = {*request.keep_level};
  }
  std::vector<Choice> starts;
  for (const int64_t rows : space.MicroBatchRows()) {
    for (const MicroBatchOrder order :
         {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
      if (request.order.value_or(order) != order || !space.IsUseful(order, rows)) {
        continue;
      }
      for (const KeepLevel keep : levels) {
        AddStarts(space.Least(order, rows, keep), space, starts);
      }
    }
  }
  return starts;
}

}  // namespace megatrain
