#ifndef RUNTIME_TRAINER_MODEL_SESSION_H_
#define RUNTIME_TRAINER_MODEL_SESSION_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/clock.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/device.h"
#include "runtime/device/device_math.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// What a model needs to be trained, wired together: store, templates, device, optimizer threads
// and the pipeline over them. Destroying it gives all of it back to the system.
class ModelSession {
 public:
  struct Options {
    int optimizer_threads = 1;
    ComputeBackend::TemplateOptions templates;
    std::vector<bool> host_gradients;  // HostStore's, see HostGradients; empty: of all units
    int fold_layers = 0;  // HostStore's: units of layers share the memory of so many; 0: none do
    int layers_per_unit = 1;  // more for measuring: GroupLayers
  };

  // With all weights zero. Requires a config that can be trained; `backend` and `clock` outlive the
  // session. RESOURCE_EXHAUSTED when the system has not the memory.
  static absl::StatusOr<std::unique_ptr<ModelSession>> Create(const ModelConfig& config,
                                                              const Options& options,
                                                              ComputeBackend& backend,
                                                              Clock& clock);

  // Gives the host store all its memory at once, by the optimizer's threads, instead of at first
  // touch by one. Once, before anything is loaded. Errors as HostStore::Populate.
  absl::StatusOr<HostStore::PopulateReport> Populate(const ByteProgress& progress);

  // Pins what of the store is to cross the bus, as far as options.pin says so and the system does
  // not refuse; what it refuses is copied more slowly. Asks for nothing where the device is the
  // host, or nothing crosses. Once, after the weights are loaded: until then the host has more room
  // for the file's pages.
  absl::StatusOr<HostStore::PinReport> Pin(const PipelineOptions& options,
                                           const ByteProgress& progress);

  // Bytes a second to the device from pinned memory of the host, and from other memory: through
  // slabs, or, where these are refused too, by way of the driver's own.
  struct CopySpeeds {
    double pinned;
    double pageable;
  };
  absl::StatusOr<CopySpeeds> MeasureCopies();

  // Takes the device memory and that of the host for activations, of which `progress` hears, and
  // copies to the device what is to stay. Once, after the weights are loaded.
  absl::Status StartPipeline(const PipelineOptions& options, const ByteProgress& progress);

  const ModelLayout& layout() const { return layout_; }
  HostStore& store() { return *store_; }
  OptimizerPool& pool() { return pool_; }  // until the pipeline starts
  StepPipeline& pipeline() { return *pipeline_; }

 private:
  ModelSession(ModelLayout layout, int optimizer_threads, ComputeBackend& backend, Clock& clock);

  const ModelLayout layout_;
  ComputeBackend& backend_;
  const Clock& clock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceMath> math_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<ModelTemplates> templates_;
  OptimizerPool pool_;
  std::unique_ptr<StepPipeline> pipeline_;  // last: it uses all of the above
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_MODEL_SESSION_H_
