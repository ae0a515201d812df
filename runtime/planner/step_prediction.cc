#include "runtime/planner/step_prediction.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/pipeline/device_memory.h"

namespace megatrain {
namespace {

// In layer-major order a schedule of so many micro-batches stands for one of more.
constexpr int kMostLayerMajor = 8;

// In micro-batch-major order each further one takes what the last of these does.
constexpr int kMostMicroBatchMajor = 4;

// A unit's state passes over the bus in so many chunks at most: many more change no second.
constexpr int64_t kMostChunks = 4;

int MicroBatchCount(const StepRows& step, const PipelineOptions& options) {
  const int64_t rows = std::max<int64_t>(options.max_micro_batch_tokens / step.row_tokens, 1);
  return static_cast<int>((step.rows + rows - 1) / rows);
}

// a + factor * (a - b), of all figures.
SimulatedStep Extrapolate(const SimulatedStep& a, const SimulatedStep& b, double factor) {
  SimulatedStep result = a;
  result.seconds += factor * (a.seconds - b.seconds);
  for (size_t i = 0; i < result.busy_seconds.size(); ++i) {
    result.busy_seconds[i] += factor * (a.busy_seconds[i] - b.busy_seconds[i]);
  }
  for (size_t i = 0; i < result.compute_waits.size(); ++i) {
    result.compute_waits[i] += factor * (a.compute_waits[i] - b.compute_waits[i]);
  }
  return result;
}

class Steps {
 public:
  Steps(const StepPredictor& parts, const PipelineOptions& options)
      : parts_(parts), options_(options), count_(MicroBatchCount(parts.step, options)) {}

  Schedule ScheduleOf(int micro_batches) const {
    absl::StatusOr<Schedule> schedule = BuildSchedule(
        MakeScheduleShape(parts_.layout, options_, micro_batches, /*forward_only=*/false));
    MT_CHECK(schedule.ok());
    return *std::move(schedule);
  }

  OperationCosts CostsOf(double micro_batches_of_one) const {
    return {parts_.config, parts_.layout, options_,
            parts_.speeds, parts_.step,   micro_batches_of_one};
  }

  // A schedule of that many, which stand for `represented` of the step's full ones.
  std::optional<SimulatedStep> SimulateBelow(int micro_batches, double represented,
                                             double limit_seconds) const {
    const OperationCosts costs = CostsOf(represented / micro_batches);
    return SimulateStepBelow(
        ScheduleOf(micro_batches), [&](const Operation& operation) { return costs.Of(operation); },
        parts_.speeds, limit_seconds);
  }

  int count() const { return count_; }

  // The last micro-batch may be smaller than the others.
  double full_count() const {
    return std::max(parts_.step.tokens() / static_cast<double>(options_.max_micro_batch_tokens),
                    1.0);
  }

 private:
  const StepPredictor& parts_;
  const PipelineOptions& options_;
  const int count_;
};

// In layer-major order micro-batches of which nothing goes to the host are as good as one: compute
// meets them one after another, and nothing else does.
bool TellsMicroBatchesApart(const PipelineOptions& options, int layer_count) {
  for (int unit = 1; unit <= layer_count; ++unit) {
    if (options.stashes_boundary(unit) || options.kept_by_place(unit)) {
      return true;
    }
  }
  return false;
}

// Fewer pieces of what the simulation need not tell apart.
void Coarsen(const ModelLayout& layout, PipelineOptions& options) {
  options.state_chunk_elements =
      std::max(options.state_chunk_elements, layout.LargestUnitElements() / kMostChunks);
  const int count = options.max_micro_batches;
  if (count > kMostLayerMajor && !options.kept_places.empty()) {
    const int on_host = options.CountKept(KeptPlace::kHost, count) * kMostLayerMajor / count;
    const int on_device = options.CountKept(KeptPlace::kDevice, count) * kMostLayerMajor / count;
    options.kept_places = SpreadKeptPlaces(kMostLayerMajor, on_host, on_device);
    options.max_micro_batches = kMostLayerMajor;
  }
}

}  // namespace

SimulatedStep StepPredictor::Predict(const PipelineOptions& options) const {
  return *PredictBelow(options, std::numeric_limits<double>::infinity());
}

std::optional<SimulatedStep> StepPredictor::PredictBelow(PipelineOptions options,
                                                         double limit_seconds) const {
  if (ComputeSeconds(options) >= limit_seconds) {
    return std::nullopt;
  }
  Coarsen(layout, options);
  const Steps steps(*this, options);
  if (options.order == MicroBatchOrder::kLayerMajor) {
    const int told_apart = TellsMicroBatchesApart(options, layout.layer_count())
                               ? std::min(steps.count(), kMostLayerMajor)
                               : 1;
    return steps.SimulateBelow(told_apart, steps.full_count(), limit_seconds);
  }
  if (steps.count() <= kMostMicroBatchMajor) {
    return steps.SimulateBelow(steps.count(), steps.full_count(), limit_seconds);
  }
  constexpr int kFewer = kMostMicroBatchMajor - 1;
  const auto fewer = steps.SimulateBelow(kFewer, kFewer, limit_seconds);
  const auto more =
      fewer ? steps.SimulateBelow(kMostMicroBatchMajor, kMostMicroBatchMajor, limit_seconds)
            : std::nullopt;
  if (!more) {
    return std::nullopt;
  }
  const SimulatedStep all = Extrapolate(*more, *fewer, steps.full_count() - kMostMicroBatchMajor);
  return all.seconds < limit_seconds ? std::optional(all) : std::nullopt;
}

double StepPredictor::ComputeSeconds(const PipelineOptions& options) const {
  const Steps steps(*this, options);
  const int count = options.max_micro_batches;
  const OperationCosts costs = steps.CostsOf(steps.full_count() / count);
  const auto seconds = [&](OperationKind kind, int unit, int micro_batch) {
    Operation operation{.kind = kind, .stream = StreamKind::kCompute};
    operation.unit = unit;
    operation.micro_batch = micro_batch;
    return costs.Of(operation).seconds;
  };
  double sum = seconds(OperationKind::kHead, layout.head_unit(), 0) * count;
  for (int unit = 1; unit < layout.head_unit(); ++unit) {
    const int distinct = options.kept_by_place(unit) ? count : 1;
    for (int micro_batch = 0; micro_batch < distinct; ++micro_batch) {
      sum += (seconds(OperationKind::kLayerForward, unit, micro_batch) +
              seconds(OperationKind::kLayerBackward, unit, micro_batch)) *
             count / distinct;
    }
  }
  return sum;
}

MachineSpeeds Faster(const MachineSpeeds& speeds, Resource resource, double factor) {
  MachineSpeeds faster = speeds;
  switch (resource) {
    case Resource::kCompute:
      faster.matmul_flops *= factor;
      faster.float32_flops *= factor;
      faster.attention_flops *= factor;
      break;
    case Resource::kBusUp:
    case Resource::kBusDown:
      faster.bus_up_bytes *= factor;
      faster.bus_down_bytes *= factor;
      faster.bus_both_bytes *= factor;
      break;
    case Resource::kHostUpdates:
      faster.host_updates *= factor;
      faster.host_memory_bytes *= factor;
      break;
    case Resource::kDeviceUpdates:
      faster.device_bytes *= factor;
      break;
  }
  return faster;
}

std::array<double, kResourceCount> SavedByDoubling(const StepPredictor& predictor,
                                                   const PipelineOptions& options,
                                                   const SimulatedStep& step) {
  std::array<double, kResourceCount> saved_seconds = {};
  for (const Resource resource : kAllResources) {
    if (resource == Resource::kBusDown) {
      continue;  // the bus is faster both ways
    }
    const MachineSpeeds faster = Faster(predictor.speeds, resource, 2);
    const StepPredictor other{predictor.config, predictor.layout, predictor.step, faster};
    saved_seconds[static_cast<size_t>(resource)] = step.seconds - other.Predict(options).seconds;
  }
  saved_seconds[static_cast<size_t>(Resource::kBusDown)] =
      saved_seconds[static_cast<size_t>(Resource::kBusUp)];
  return saved_seconds;
}

Resource BindingResource(const SimulatedStep& step,
                         const std::array<double, kResourceCount>& saved_seconds) {
  const auto busier = [&](Resource a, Resource b) {
    const auto& busy = step.busy_seconds;
    return busy[static_cast<size_t>(a)] >= busy[static_cast<size_t>(b)] ? a : b;
  };
  const auto most = std::max_element(saved_seconds.begin(), saved_seconds.end());
  const Resource binding = kAllResources[most - saved_seconds.begin()];
  switch (binding) {
    case Resource::kBusUp:
    case Resource::kBusDown:
      return busier(Resource::kBusUp, Resource::kBusDown);
    case Resource::kDeviceUpdates:
      return busier(Resource::kCompute, Resource::kDeviceUpdates);
    case Resource::kCompute:
    case Resource::kHostUpdates:
      return binding;
  }
  return binding;
}

}  // namespace megatrain
