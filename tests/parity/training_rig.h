// The real engine below the trainer, put together for a test: templates, store, pipeline.

#ifndef TESTS_PARITY_TRAINING_RIG_H_
#define TESTS_PARITY_TRAINING_RIG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

struct RigOptions {
  ComputeDtype dtype = ComputeDtype::kFloat32;
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slots = 2;
  int gradient_slots = 2;
  bool resident = false;
  KeepLevel keep = KeepLevel::kNothing;  // of every layer
  std::vector<UpdatePlacement> updates;  // by unit; empty: the host updates all
  int64_t state_chunk_elements = 4096;   // of updates over the bus
  int staging_slots = 2;
  std::vector<bool> boundary_on_host;  // by unit; empty: none
  std::vector<bool> kept_on_host;      // the same
  std::vector<KeptPlace> kept_places;  // by micro-batch, see PipelineOptions
  int stash_slots = 2;
  PinMode pin = PinMode::kAuto;
  int64_t slab_bytes = kSlabBytes;
  int optimizer_threads = 2;
  int64_t max_tokens = 512;  // of a step and of a micro-batch
  int64_t max_documents = 16;
  int max_micro_batches = 8;
};

// The backend of processors, one a process.
ComputeBackend& CpuBackendForTest();

// Attention is deterministic. On processors no page of a unit can be touched outside its accesses.
class TrainingRig {
 public:
  // `backend` outlives the rig.
  static absl::StatusOr<std::unique_ptr<TrainingRig>> Create(const ModelConfig& config,
                                                             const RigOptions& options,
                                                             ComputeBackend& backend);

  const ModelLayout& layout() const { return layout_; }
  Device& device() { return *device_; }
  HostStore& store() { return *store_; }
  StepPipeline& pipeline() { return *pipeline_; }

  // The first and only call that makes a pipeline: after the store has its weights.
  absl::Status Start();

  // One tensor of the store as numbers; all work must be over.
  std::vector<double> Weights(int unit, const TensorLayout& tensor);
  std::vector<double> Gradient(int unit, const TensorLayout& tensor);

  // Every plane but the gradients, of all units.
  std::string StateBytes();

  // The same in little: a CRC-32C of each plane of each unit.
  std::vector<uint32_t> StateDigests();

 private:
  TrainingRig(const ModelConfig& config, const RigOptions& options, ComputeBackend& backend);

  void VisitState(const std::function<void(std::string_view plane)>& visit);

  const ModelConfig config_;
  const RigOptions options_;
  const ModelLayout layout_;
  ComputeBackend& backend_;
  SystemClock clock_;
  OptimizerPool pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceMath> math_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<ModelTemplates> templates_;
  std::unique_ptr<StepPipeline> pipeline_;  // last: it uses all of the above
};

}  // namespace megatrain

#endif  // TESTS_PARITY_TRAINING_RIG_H_
