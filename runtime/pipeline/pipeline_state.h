#ifndef RUNTIME_PIPELINE_PIPELINE_STATE_H_
#define RUNTIME_PIPELINE_PIPELINE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/config/model_layout.h"
#include "runtime/device/device_math.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/results_layout.h"

namespace megatrain {

// What all steps of a pipeline share.
struct PipelineState {
  ModelLayout layout;
  HostStore& store;
  ModelTemplates& templates;
  DeviceMath& math;
  OptimizerPool& pool;
  PipelineOptions options;
  DeviceMemoryMap map;
  ResultsLayout results_layout;
  std::byte* device = nullptr;                    // the arena that `map` describes
  std::unique_ptr<PinnedArena> host_activations;  // map.host_parts; nullptr when there are none
  std::byte* host_results = nullptr;              // where a step's results go, by results_layout
  int64_t update_count = 0;                       // steps that updated; the optimizer stream's own
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_STATE_H_
