#include "runtime/planner/plan_explanation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/planner/step_prediction.h"

namespace megatrain {
namespace {

// For the few entries of a plan; std::stable_sort asks for a buffer in a deprecated way.
template <typename Entry, typename Less>
void SortStably(std::vector<Entry>& entries, const Less& less) {
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    std::rotate(std::upper_bound(entries.begin(), entry, *entry, less), entry, entry + 1);
  }
}

constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr int64_t kMoreDeviceBytes = 16 * kGibibyte;
constexpr int64_t kMoreHostBytes = 64 * kGibibyte;

// A gain of less of a step is not told.
constexpr double kWorthTelling = 0.005;

// Counts units by plane and place, in the order in which they were met.
class Planes {
 public:
  void Count(const std::string& plane, const std::string& place) {
    for (PlanePlacement& known : list_) {
      if (known.plane == plane && known.place == place) {
        ++known.unit_count;
        return;
      }
    }
    list_.push_back({plane, place, 1});
  }

  std::vector<PlanePlacement> Take() && { return std::move(list_); }

 private:
  std::vector<PlanePlacement> list_;
};

// Whether a unit that streams crosses the bus once a step and then lies on the device until it has
// been used for the last time. Where slots are fewer than layers, only of the ends.
bool StaysForTheStep(const PipelineOptions& options, int unit, int layer_count) {
  if (unit == 0 || unit == layer_count + 1) {
    return true;
  }
  int streamed = 0;
  for (int layer = 1; layer <= layer_count; ++layer) {
    streamed += options.on_device(layer) ? 0 : 1;
  }
  return options.weight_slot_count >= streamed;
}

bool AnyPasses(const PipelineOptions& options, int unit_count) {
  for (int unit = 0; unit < unit_count; ++unit) {
    if (PassesOverBus(options.update_of(unit))) {
      return true;
    }
  }
  return false;
}

// Whether what crosses the bus is pinned. Through slabs only these are, and without a GPU there is
// no bus.
bool Pins(const PipelineOptions& options, Backend backend) {
  return backend == Backend::kCuda && options.pin != PinMode::kSlabs;
}

const char* CrossingPlace(bool pins) { return pins ? "pinned_host" : "pageable_host"; }

const char* WeightsPlace(const PipelineOptions& options, bool pins, int unit, int layer_count) {
  if (options.on_device(unit)) {
    return "device";
  }
  const bool once = StaysForTheStep(options, unit, layer_count);
  return once && pins ? "pinned_host_once" : CrossingPlace(pins);
}

const char* StatesPlace(const PipelineOptions& options, bool pins, int unit, int layer_count) {
  if (options.update_of(unit) == UpdatePlacement::kDevice) {
    return "device";
  }
  // Planes are pinned whole: where one unit's state passes, all of them are.
  return CrossingPlace(pins && AnyPasses(options, layer_count + 2));
}

void CountUnit(const PipelineOptions& options, bool pins, int unit, int layer_count,
               Planes& planes) {
  const UpdatePlacement update = options.update_of(unit);
  planes.Count("weights", WeightsPlace(options, pins, unit, layer_count));
  planes.Count("gradients", GradientCrosses(update) ? CrossingPlace(pins) : "device");
  planes.Count("optimizer_states", StatesPlace(options, pins, unit, layer_count));
  planes.Count("updates", update == UpdatePlacement::kDevice ? "device"
                          : PassesOverBus(update)            ? "bus"
                                                             : "host");
}

const char* PlaceOfLevel(KeepLevel level) {
  switch (level) {
    case KeepLevel::kNothing:
      return "recomputed";
    case KeepLevel::kAttention:
      return "device_attention";
    case KeepLevel::kProjections:
      return "device_projections";
    case KeepLevel::kProducts:
    case KeepLevel::kAll:
      return "device";
  }
  return "unknown";
}

// Of a layer that keeps some micro-batches here and some there.
std::string PlaceByMicroBatch(const PipelineOptions& options, bool pins) {
  const int count = options.max_micro_batches;
  const int on_host = options.CountKept(KeptPlace::kHost, count);
  const int on_device = options.CountKept(KeptPlace::kDevice, count);
  const std::string host = CrossingPlace(pins);
  if (on_host == count) {
    return host;
  }
  if (on_device == 0) {
    return "partly_" + host;
  }
  return (on_host + on_device == count ? "device_and_" : "partly_device_and_") + host;
}

void CountLayer(const PipelineOptions& options, bool pins, int unit, Planes& planes) {
  planes.Count("boundaries", options.stashes_boundary(unit) ? CrossingPlace(pins) : "device");
  planes.Count("activations", options.kept_by_place(unit) ? PlaceByMicroBatch(options, pins)
                                                          : PlaceOfLevel(options.keep_of(unit)));
}

std::vector<PlanePlacement> PlanesOf(const PipelineOptions& options, Backend backend,
                                     int layer_count) {
  Planes planes;
  const bool pins = Pins(options, backend);
  for (int unit = 0; unit < layer_count + 2; ++unit) {
    CountUnit(options, pins, unit, layer_count, planes);
  }
  for (int unit = 1; unit <= layer_count; ++unit) {
    CountLayer(options, pins, unit, planes);
  }
  std::vector<PlanePlacement> list = std::move(planes).Take();
  SortStably(list, [](const auto& a, const auto& b) { return a.plane < b.plane; });
  return list;
}

// A job's limit lies below what the machine has, so it grows with that.
int64_t Grown(int64_t limit_bytes, int64_t more_bytes) {
  return limit_bytes > 0 ? limit_bytes + more_bytes : 0;
}

std::vector<ResourceGain> MemoryGains(const ModelConfig& config, const JobShape& shape,
                                      const MachineProfile& machine, const Plan& plan) {
  const auto saved = [&](const JobShape& other_shape, const MachineProfile& other_machine) {
    return plan.predicted.seconds - PlanJob(config, other_shape, other_machine).predicted.seconds;
  };
  JobShape more_device = shape;
  more_device.device_limit_bytes = Grown(shape.device_limit_bytes, kMoreDeviceBytes);
  MachineProfile larger_device = machine;
  larger_device.device_memory_bytes += kMoreDeviceBytes;
  JobShape more_host = shape;
  more_host.host_limit_bytes = Grown(shape.host_limit_bytes, kMoreHostBytes);
  MachineProfile larger_host = machine;
  larger_host.host_available_bytes += kMoreHostBytes;
  return {{"device_memory", "16 GiB more", saved(more_device, larger_device)},
          {"host_memory", "64 GiB more", saved(more_host, larger_host)}};
}

// Under the same placement, so what could be gained at least.
std::vector<ResourceGain> SpeedGains(const std::array<double, kResourceCount>& saved_seconds) {
  std::vector<ResourceGain> gains;
  for (const Resource resource : kAllResources) {
    if (resource == Resource::kBusDown) {
      continue;  // a faster bus is so both ways
    }
    gains.push_back({std::string(resource == Resource::kBusUp           ? "bus_bandwidth"
                                 : resource == Resource::kDeviceUpdates ? "device_bandwidth"
                                                                        : ResourceName(resource)),
                     "twice as fast", saved_seconds[static_cast<size_t>(resource)]});
  }
  return gains;
}

}  // namespace

PlanExplanation ExplainPlan(const ModelConfig& config, const JobShape& shape,
                            const MachineProfile& machine, const Plan& plan) {
  PlanExplanation explanation;
  if (plan.pipeline.max_step_tokens == 0) {
    return explanation;  // the job's counts are out of range
  }
  explanation.planes =
      PlanesOf(plan.pipeline, machine.backend, static_cast<int>(config.layer_count));
  if (plan.predicted.seconds <= 0) {
    return explanation;
  }
  const ModelLayout layout = PlanningLayout(config);
  const StepPredictor predictor{config, layout, plan.step, machine.speeds};
  const std::array<double, kResourceCount> saved =
      SavedByDoubling(predictor, plan.pipeline, plan.predicted);
  explanation.binding_resource = ResourceName(BindingResource(plan.predicted, saved));
  explanation.gains = MemoryGains(config, shape, machine, plan);
  const std::vector<ResourceGain> speeds = SpeedGains(saved);
  explanation.gains.insert(explanation.gains.end(), speeds.begin(), speeds.end());
  std::erase_if(explanation.gains, [&](const ResourceGain& gain) {
    return gain.saved_seconds < kWorthTelling * plan.predicted.seconds;
  });
  SortStably(explanation.gains,
             [](const auto& a, const auto& b) { return a.saved_seconds > b.saved_seconds; });
  return explanation;
}

}  // namespace megatrain
