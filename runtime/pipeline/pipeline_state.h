#ifndef RUNTIME_PIPELINE_PIPELINE_STATE_H_
#define RUNTIME_PIPELINE_PIPELINE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/device.h"
#include "runtime/device/device_math.h"
#include "runtime/device/slab_launcher.h"
#include "runtime/device/stream_figures.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/results_layout.h"
#include "runtime/pipeline/slab_pool.h"

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
  std::unique_ptr<SlabPool> slabs;  // nullptr where copies reach the host's memory anyway
  int64_t update_count = 0;         // steps that updated; the optimizer stream's own

  // Whether the device's copies reach the host memory at an address by themselves.
  bool reaches(const void* host) const {
    return host == host_results || store.pins(host) ||
           (host_activations != nullptr && host_activations->pins(host));
  }

  // Runs work(launcher), with copies that go through slabs where they must.
  template <typename Work>
  absl::Status WithSlabs(StreamKind stream, Launcher& launcher, const Work& work) const {
    SlabLane* const lane = slabs == nullptr ? nullptr : slabs->lane(stream);
    if (lane == nullptr) {
      return work(launcher);
    }
    const SlabLauncher::Reaches reached = [this](const void* host) { return reaches(host); };
    SlabLauncher through_slabs(launcher, *lane, reached);
    return work(through_slabs);
  }
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_STATE_H_
