#include "server/api/job_service_for_test.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/status_for_test.h"
#include "server/database/request_log.h"
#include "server/resources/resource_table.h"

namespace megatrain {
namespace {

// Tells the streams.
class HubObserver final : public JobObserver {
 public:
  explicit HubObserver(FollowHub& hub) : hub_(hub) {}

  void OnChange(const v1::Job& job) override { hub_.Notify(job.name()); }
  void OnLog(const v1::Job& job) override { hub_.Notify(job.name()); }
  void OnStep(const v1::Job&, const v1::StepRecord&) override {}
  void OnCheckpoint(const v1::Job&, const engine::v1::CheckpointSaved&) override {}
  void OnCheckpointFailure(const v1::Job&, const v1::CheckpointFailure&) override {}
  void OnEvaluation(const v1::Job&, const v1::EvaluationRecord&) override {}
  void OnDrained(const v1::Job&) override {}
  void OnPreempted(const v1::Job&) override {}
  void OnRecovered(const v1::Job&) override {}
  void OnEnd(const v1::Job&) override {}
  void OnFigures(const engine::v1::StreamFigures&) override {}
  void OnActiveJobs(const std::vector<JobRecord>&) override {}

 private:
  FollowHub& hub_;
};

}  // namespace

void JobServiceTest::SetUp() {
  observer_ = std::make_unique<HubObserver>(hub_);
  folder_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder_ + "/model");
  std::ofstream(folder_ + "/model/config.json") << kToyConfig;
  database_ = *Database::Open(folder_ + "/db",
                              {RequestLogMigration(), JobStoreMigration(), ResourceTableMigration(),
                               JobWishMigration(), JobResumeMigration()});
  store_ = std::make_unique<SqliteJobStore>(*database_, clock_);
  uploads_ = *UploadStore::Open(*database_, files_, clock_, {.folder = folder_ + "/uploads"});
  preparer_ = std::make_unique<DataPreparer>(clock_, DataPreparer::Options());
  datasets_ = *DatasetStore::Open({*database_, files_, clock_, *uploads_, *preparer_},
                                  {.datasets_folder = folder_ + "/datasets",
                                   .prepared_folder = folder_ + "/prepared",
                                   .staging_folder = folder_ + "/tmp/prepare"});
  models_ = *ModelStore::Open(
      {*database_, files_, clock_},
      {.models_folder = folder_ + "/models", .staging_folder = folder_ + "/tmp/import"});
  AddCatalog();
  log_ = std::make_unique<JobLog>(files_, folder_ + "/jobs");
  catalog_ = *CheckpointCatalog::Open({*database_, files_, clock_, *store_, folder_ + "/jobs",
                                       [](int64_t) {}, [](const std::string&) {}});
  admission_ = std::make_unique<JobAdmission>(JobAdmission::Parts{
      *models_, *datasets_, files_, [this]() -> absl::StatusOr<MachineProfile> { return machine_; },
      "fp32", folder_ + "/jobs"});
  service_ = std::make_unique<JobService>(JobService::Parts{calls_, stream_executor_, hub_, *store_,
                                                            *catalog_, *log_, *admission_, clock_,
                                                            [this] { Tick(); }, [] {}});
  checkpoint_service_ = std::make_unique<CheckpointService>(CheckpointService::Parts{
      calls_, long_calls_, stream_executor_, hub_, *catalog_, *store_, clock_, [this] { Tick(); }});
  MakeController();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  builder.RegisterService(checkpoint_service_.get());
  server_ = builder.BuildAndStart();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 14);
  const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                                 grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::JobService::NewStub(channel);
  checkpoint_stub_ = v1::CheckpointService::NewStub(channel);
}

void JobServiceTest::TearDown() {
  hub_.Drain();
  server_->Shutdown();
  server_->Wait();
}

void JobServiceTest::MakeController() {
  MutexLock lock(&controller_mutex_);
  controller_ = std::make_unique<JobController>(
      JobController::Parts{*store_, runner_, materials_, *catalog_, *log_, *observer_}, [] {});
}

void JobServiceTest::AddCatalog() {
  ASSERT_TRUE(database_
                  ->Write([this](Connection& connection) -> absl::Status {
                    v1::ModelVersion model;
                    model.set_name("models/toy/versions/1");
                    model.set_state(v1::MODEL_STATE_READY);
                    model.set_path(folder_ + "/model");
                    model.set_trainable(true);
                    MT_RETURN_IF_ERROR(InsertResource(connection, "models/toy", model.name(),
                                                      model.state(), model));
                    model.set_name("models/moe/versions/1");
                    model.set_architecture("MixtralForCausalLM");
                    model.set_failure("mixtures of experts");
                    model.set_trainable(false);
                    MT_RETURN_IF_ERROR(InsertResource(connection, "models/moe", model.name(),
                                                      model.state(), model));
                    v1::Dataset dataset;
                    dataset.set_name("datasets/rows");
                    dataset.set_state(v1::DATASET_STATE_READY);
                    return InsertResource(connection, "datasets", dataset.name(), dataset.state(),
                                          dataset);
                  })
                  .ok());
}

void JobServiceTest::Tick() {
  MutexLock lock(&controller_mutex_);
  EXPECT_TRUE(controller_->Tick(clock_.WallNow()).ok());
}

v1::CreateJobRequest JobServiceTest::Request(const std::string& id) {
  v1::CreateJobRequest request;
  request.set_job_id(id);
  request.mutable_spec()->set_model("models/toy");
  request.mutable_spec()->set_dataset("datasets/rows");
  request.mutable_spec()->mutable_train()->set_steps(3);
  request.mutable_spec()->mutable_train()->set_max_sequence_length(64);
  return request;
}

absl::Status JobServiceTest::Create(const v1::CreateJobRequest& request, v1::Job* job) {
  grpc::ClientContext context;
  v1::Job ignored;
  return FromGrpcStatus(stub_->CreateJob(&context, request, job == nullptr ? &ignored : job));
}

v1::Job JobServiceTest::Get(const std::string& name) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  const grpc::Status status = stub_->GetJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

absl::Status JobServiceTest::Cancel(const std::string& name, v1::Job* job) {
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  return FromGrpcStatus(stub_->CancelJob(&context, request, job));
}

void JobServiceTest::RunSteps(int steps) {
  Tick();
  materials_.Answer();
  Tick();
  ASSERT_TRUE(runner_.running.has_value());
  runner_.EmitStarted(steps);
  for (int i = 1; i <= steps; ++i) {
    v1::StepRecord step;
    step.set_step(i);
    step.set_loss(1.0 / i);
    runner_.EmitStep(step);
  }
  Tick();
}

void JobServiceTest::Succeed(const std::string& name) {
  disk_.output_folders.insert(materials_.OutputFolder(Get(name)));
  runner_.Finish();
  Tick();
  materials_.Answer();
  Tick();
}

}  // namespace megatrain
