// Whether a job can be accepted, and what it would take.

#ifndef SERVER_PLANNING_JOB_ADMISSION_H_
#define SERVER_PLANNING_JOB_ADMISSION_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/model.pb.h"
#include "runtime/base/file_system.h"
#include "runtime/config/model_config.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/machine_file.h"
#include "server/datasets/dataset_store.h"
#include "server/models/model_store.h"

namespace megatrain {

// Thread-safe; calls block on the disk.
class JobAdmission {
 public:
  // All outlive it. `machine` is asked at each call: memory comes and goes.
  struct Parts {
    ModelStore& models;
    DatasetStore& datasets;
    FileSystem& disk;
    std::function<absl::StatusOr<MachineProfile>()> machine;
    std::string compute_dtype;  // the default of the engine's backend
    std::string checkpoints_folder;
  };

  explicit JobAdmission(const Parts& parts) : parts_(parts) {}

  // Completes `spec`, fixes its model to a version, and plans it. INVALID_ARGUMENT with every wrong
  // field; NOT_FOUND; FAILED_PRECONDITION with the reason MODEL_NOT_READY, DATASET_NOT_READY,
  // MODEL_NOT_TRAINABLE, HOST_MEMORY_EXCEEDED, DEVICE_MEMORY_EXCEEDED or DISK_SPACE_EXCEEDED.
  // `output` is the default of spec.output.
  absl::StatusOr<v1::Plan> Admit(v1::TrainingSpec& spec, const std::string& output) const;

  // The plan alone and why it is so, also of what does not fit or cannot be trained yet. With
  // `model_config_json` (a config.json) spec.model is not read. `machine` is the name or the text
  // of one that machine_file.h knows; empty: this one.
  absl::StatusOr<v1::Plan> Plan(v1::TrainingSpec spec, const std::string& model_config_json,
                                const std::string& machine) const;

 private:
  // The shape of a model's folder.
  absl::StatusOr<ModelConfig> ReadConfig(const std::string& model_path) const;
  absl::StatusOr<Machine> FindMachine(const std::string& machine) const;
  absl::StatusOr<v1::ModelVersion> FindModel(const std::string& name) const;
  absl::StatusOr<v1::Dataset> FindDataset(const std::string& name) const;
  absl::Status CheckRoom(const v1::CheckpointOptions& options, int64_t checkpoint_bytes) const;

  const Parts parts_;
};

}  // namespace megatrain

#endif  // SERVER_PLANNING_JOB_ADMISSION_H_
