// For tests: JobService and CheckpointService over a real socket, a real SQLite file and a real
// controller; the engine is scripted.

#ifndef SERVER_API_JOB_SERVICE_FOR_TEST_H_
#define SERVER_API_JOB_SERVICE_FOR_TEST_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/planner/machine.h"
#include "server/api/checkpoint_service.h"
#include "server/api/follow_stream.h"
#include "server/api/job_service.h"
#include "server/api/unary_calls.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/database/database.h"
#include "server/datasets/data_preparer.h"
#include "server/datasets/dataset_store.h"
#include "server/executor/executor.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/job_log.h"
#include "server/jobs/scripted_job_materials.h"
#include "server/jobs/scripted_job_runner.h"
#include "server/jobs/sqlite_job_store.h"
#include "server/models/model_store.h"
#include "server/planning/job_admission.h"
#include "server/uploads/upload_store.h"

namespace megatrain {

// The config.json of models/toy: a small Llama.
inline constexpr char kToyConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
  "hidden_act": "silu"})";

class JobServiceTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A controller as a daemon that starts has it.
  void MakeController();

  // READY rows, as the catalogue's own tests make them from files.
  void AddCatalog();

  // The controller's tick.
  void Tick();

  // Three steps over the catalogue's rows.
  static v1::CreateJobRequest Request(const std::string& id);

  absl::Status Create(const v1::CreateJobRequest& request, v1::Job* job = nullptr);
  v1::Job Get(const std::string& name);
  absl::Status Cancel(const std::string& name, v1::Job* job);

  // The job that was created last runs and does `steps` steps.
  void RunSteps(int steps);

  // The job that runs ends well.
  void Succeed(const std::string& name);

  std::string folder_;
  VirtualClock clock_;
  PosixFileSystem files_;
  MachineProfile machine_{Backend::kCpu, int64_t{8} << 30, 0, int64_t{300} << 20};
  std::unique_ptr<Database> database_;
  std::unique_ptr<SqliteJobStore> store_;
  std::unique_ptr<UploadStore> uploads_;
  std::unique_ptr<DataPreparer> preparer_;
  std::unique_ptr<DatasetStore> datasets_;
  std::unique_ptr<ModelStore> models_;
  std::unique_ptr<JobLog> log_;
  std::unique_ptr<CheckpointCatalog> catalog_;
  std::unique_ptr<JobAdmission> admission_;
  FollowHub hub_;
  std::unique_ptr<JobObserver> observer_;
  ScriptedDisk disk_;
  ScriptedJobRunner runner_;
  ScriptedJobMaterials materials_{disk_};
  Mutex controller_mutex_;
  std::unique_ptr<JobController> controller_ ABSL_GUARDED_BY(controller_mutex_);
  Executor call_executor_{2};
  Executor long_call_executor_{1};
  Executor stream_executor_{2};
  SystemClock system_clock_;  // deadlines are the machine's
  UnaryCalls calls_{call_executor_, system_clock_};
  UnaryCalls long_calls_{long_call_executor_, system_clock_};
  std::unique_ptr<JobService> service_;
  std::unique_ptr<CheckpointService> checkpoint_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoint_stub_;
};

}  // namespace megatrain

#endif  // SERVER_API_JOB_SERVICE_FOR_TEST_H_
