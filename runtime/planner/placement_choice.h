// What distinguishes one placement from another, in numbers that a search can vary. Pure.

#ifndef RUNTIME_PLANNER_PLACEMENT_CHOICE_H_
#define RUNTIME_PLANNER_PLACEMENT_CHOICE_H_

#include <array>
#include <compare>
#include <cstdint>
#include <functional>

#include "runtime/config/model_layout.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/operation_costs.h"

namespace megatrain {

// What a backend takes of device memory beside what every pipeline does.
struct BackendMemory {
  std::function<int64_t(int64_t tokens)> workspace_bytes;      // of one micro-batch
  std::function<int64_t(int64_t tokens)> batch_table_bytes;    // of one micro-batch
  std::array<int64_t, kKeepLevelCount> kept_token_bytes = {};  // of one layer, by KeepLevel
  bool stages_loads = false;
};

// Where units are updated is counted over all of them in the order in which a step lacks them: the
// embedding and the head, whose weights are needed first and whose gradients come last, then the
// layers as forward meets them. First come the units on the device, then those that stay there but
// for their state; of all that is left the host updates some, and some go over the bus, spread so
// that both are busy all the time.
struct Choice {
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int64_t micro_batch_rows = 1;
  int weight_slots = 2;                  // for layers that stream
  int gradient_slots = 2;                // for the same in layer-major order
  KeepLevel keep = KeepLevel::kNothing;  // of layers that none of the two below names
  int full_keep_layers = 0;              // of the last so many layers: all products
  int whole_keep_layers = 0;             // of the last so many of these: everything
  int device_units = 0;                  // updated on the device, from its memory
  int device_weight_units = 0;           // updated there over the bus; weights and gradients stay
  int bus_units = 0;                     // updated there over the bus
  int kept_gradient_units = 0;           // of these, at even distances: the gradient stays there

  // In layer-major order what waits for backward may wait on the host: the input of so many layers
  // at even distances; and of so many micro-batches everything that those layers compute that do
  // not keep it of all on the device. Those layers may keep so many others there, and then keep
  // nothing of the rest.
  int host_boundary_layers = 0;
  int host_kept_micro_batches = 0;
  int device_kept_micro_batches = 0;
  int stash_slots = 3;  // through which both pass

  auto operator<=>(const Choice&) const = default;
};

// What is to be placed.
struct PlacementSubject {
  const ModelLayout& layout;
  const StepRows& step;
  ComputeDtype compute_dtype;
  const BackendMemory& memory;
  int fold_layers;  // PlacementRequest's
  PinMode pin;      // PipelineOptions'
};

// The choice with numbers of which nothing depends set to ones that are equal for all such choices.
Choice Canonical(Choice choice, const ModelLayout& layout);

// Complete options of a pipeline.
PipelineOptions OptionsOf(const Choice& choice, const PlacementSubject& subject);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLACEMENT_CHOICE_H_
