// What each operation of a step's schedule takes of a machine. Pure arithmetic.

#ifndef RUNTIME_PLANNER_OPERATION_COSTS_H_
#define RUNTIME_PLANNER_OPERATION_COSTS_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// What works when an operation runs.
enum class Resource { kCompute, kBusUp, kBusDown, kHostUpdates, kDeviceUpdates };

inline constexpr std::array kAllResources = {Resource::kCompute, Resource::kBusUp,
                                             Resource::kBusDown, Resource::kHostUpdates,
                                             Resource::kDeviceUpdates};
inline constexpr int kResourceCount = static_cast<int>(kAllResources.size());

// `compute`, `bus_up`, `bus_down`, `host_updates`, `device_updates`.
std::string_view ResourceName(Resource resource);

struct OperationCost {
  Resource resource = Resource::kCompute;
  double seconds = 0;     // when nothing else runs
  double host_bytes = 0;  // of host memory, read and written
};

// A step of `rows` documents of `row_tokens` tokens.
struct StepRows {
  int64_t rows = 0;
  int64_t row_tokens = 0;

  double tokens() const { return static_cast<double>(rows) * static_cast<double>(row_tokens); }
};

// Of one model and placement; what they refer to outlives them.
class OperationCosts {
 public:
  // `micro_batches`: how many of the step's each one of the schedule stands for.
  OperationCosts(const ModelConfig& config, const ModelLayout& layout,
                 const PipelineOptions& options, const MachineSpeeds& speeds, const StepRows& step,
                 double micro_batches);

  OperationCost Of(const Operation& operation) const;

 private:
  // Of one of the schedule's micro-batches.
  struct LayerSeconds {
    double forward = 0;
    double backward = 0;                                 // with what is always computed twice
    std::array<double, kKeepLevelCount> recompute = {};  // by what forward kept
  };

  LayerSeconds MeasureLayer(const ModelConfig& config, const StepRows& step) const;
  double Products(double flops) const;
  double DeviceBytes(double bytes) const { return bytes / speeds_.device_bytes; }
  OperationCost Copy(Resource direction, double bytes) const;
  double Elements(int unit) const;
  double ChunkElements(const Operation& operation) const;
  double StashBytes(const Operation& operation) const;
  double BackwardSeconds(const Operation& operation) const;

  const ModelLayout& layout_;
  const PipelineOptions& options_;
  const MachineSpeeds& speeds_;
  const double micro_batch_tokens_;  // of one in the step
  const double tokens_;              // of one in the schedule
  const double hidden_bytes_;        // of a token at the boundary of a layer
  double head_seconds_ = 0;
  double embedding_seconds_ = 0;
  LayerSeconds layer_;
};

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_OPERATION_COSTS_H_
