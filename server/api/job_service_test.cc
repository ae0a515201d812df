// JobService over a real socket, a real SQLite file and a real controller; the engine is scripted.

#include "server/api/job_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/virtual_clock.h"
#include "server/api/status_for_test.h"
#include "server/database/database.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/scripted_job_materials.h"
#include "server/jobs/scripted_job_runner.h"
#include "server/jobs/sqlite_job_store.h"
#include "server/resources/resource_table.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
  "hidden_act": "silu"})";

// Tells the streams.
class HubObserver final : public JobObserver {
 public:
  explicit HubObserver(FollowHub& hub) : hub_(hub) {}

  void OnChange(const v1::Job& job) override { hub_.Notify(job.name()); }
  void OnLog(const v1::Job& job) override { hub_.Notify(job.name()); }
  void OnStep(const v1::Job&, const v1::StepRecord&) override {}
  void OnEnd(const v1::Job&) override {}
  void OnFigures(const engine::v1::StreamFigures&) override {}
  void OnActiveJobs(const std::vector<JobRecord>&) override {}

 private:
  FollowHub& hub_;
};

class JobServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_ + "/model");
    std::ofstream(folder_ + "/model/config.json") << kConfig;
    database_ = *Database::Open(
        folder_ + "/db", {RequestLogMigration(), JobStoreMigration(), ResourceTableMigration()});
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
    admission_ = std::make_unique<JobAdmission>(JobAdmission::Parts{
        *models_, *datasets_, files_,
        [this]() -> absl::StatusOr<MachineProfile> { return machine_; }, "fp32"});
    service_ = std::make_unique<JobService>(JobService::Parts{calls_, stream_executor_, hub_,
                                                              *store_, *log_, *admission_, clock_,
                                                              [this] { Tick(); }, [] {}});
    MakeController();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 14);
    stub_ = v1::JobService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));
  }

  void TearDown() override {
    hub_.Drain();
    server_->Shutdown();
    server_->Wait();
  }

  void MakeController() {
    MutexLock lock(&controller_mutex_);
    controller_ = std::make_unique<JobController>(
        JobController::Parts{*store_, runner_, materials_, *log_, observer_}, [] {});
  }

  // READY rows, as the catalogue's own tests make them from files.
  void AddCatalog() {
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

  void Tick() {
    MutexLock lock(&controller_mutex_);
    EXPECT_TRUE(controller_->Tick(clock_.WallNow()).ok());
  }

  static v1::CreateJobRequest Request(const std::string& id) {
    v1::CreateJobRequest request;
    request.set_job_id(id);
    request.mutable_spec()->set_model("models/toy");
    request.mutable_spec()->set_dataset("datasets/rows");
    request.mutable_spec()->mutable_train()->set_steps(3);
    request.mutable_spec()->mutable_train()->set_max_sequence_length(64);
    return request;
  }

  absl::Status Create(const v1::CreateJobRequest& request, v1::Job* job = nullptr) {
    grpc::ClientContext context;
    v1::Job ignored;
    return FromGrpcStatus(stub_->CreateJob(&context, request, job == nullptr ? &ignored : job));
  }

  v1::Job Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    const grpc::Status status = stub_->GetJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  absl::Status Cancel(const std::string& name, v1::Job* job) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(name);
    return FromGrpcStatus(stub_->CancelJob(&context, request, job));
  }

  // The job that was created last runs and does `steps` steps.
  void RunSteps(int steps) {
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

  void Succeed(const std::string& name) {
    disk_.output_folders.insert(materials_.OutputFolder(Get(name)));
    runner_.Finish();
    Tick();
    materials_.Answer();
    Tick();
  }

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
  std::unique_ptr<JobAdmission> admission_;
  FollowHub hub_;
  HubObserver observer_{hub_};
  ScriptedDisk disk_;
  ScriptedJobRunner runner_;
  ScriptedJobMaterials materials_{disk_};
  Mutex controller_mutex_;
  std::unique_ptr<JobController> controller_ ABSL_GUARDED_BY(controller_mutex_);
  Executor call_executor_{2};
  Executor stream_executor_{2};
  SystemClock system_clock_;  // deadlines are the machine's
  UnaryCalls calls_{call_executor_, system_clock_};
  std::unique_ptr<JobService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::JobService::Stub> stub_;
};

TEST_F(JobServiceTest, AcceptsAJobWithDefaultsPlanAndVersion) {
  v1::Job job;
  const absl::Status status = Create(Request("first"), &job);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(job.name(), "jobs/first");
  EXPECT_EQ(job.spec().model(), "models/toy/versions/1");
  EXPECT_EQ(job.spec().output(), "models/first");
  EXPECT_EQ(job.spec().train().batch_rows(), 8);
  EXPECT_TRUE(job.plan().fits()) << job.plan().verdict();
  EXPECT_GT(job.plan().host_bytes(), 0);
  EXPECT_EQ(job.plan().step_count(), 3);
  EXPECT_NE(job.uid(), "");
  EXPECT_NE(job.etag(), "");
}

TEST_F(JobServiceTest, ARepeatGetsTheFirstAnswerAlsoWhenItWouldNotFitAnyMore) {
  v1::CreateJobRequest request = Request("");
  request.set_request_id("0f8fad5b-d9cb-469f-a165-70867728950e");
  (*request.mutable_labels())["team"] = "a";
  (*request.mutable_labels())["kind"] = "b";
  v1::Job first;
  ASSERT_TRUE(Create(request, &first).ok());
  machine_.host_available_bytes = 1;
  v1::Job repeat;
  ASSERT_TRUE(Create(request, &repeat).ok());
  EXPECT_EQ(repeat.name(), first.name());
  request.mutable_spec()->mutable_train()->set_steps(4);
  EXPECT_EQ(ReasonOf(Create(request)), "REQUEST_ID_REUSED");
}

TEST_F(JobServiceTest, RefusesByNameAndNumber) {
  v1::CreateJobRequest request = Request("Bad Id");
  EXPECT_EQ(Create(request).code(), absl::StatusCode::kInvalidArgument);
  request = Request("a");
  request.mutable_spec()->set_model("models/none");
  EXPECT_EQ(Create(request).code(), absl::StatusCode::kNotFound);
  request = Request("a");
  request.mutable_spec()->set_dataset("datasets/none");
  EXPECT_EQ(Create(request).code(), absl::StatusCode::kNotFound);
  request = Request("a");
  request.mutable_spec()->set_model("models/moe");
  EXPECT_EQ(ReasonOf(Create(request)), "MODEL_NOT_TRAINABLE");
  EXPECT_THAT(std::string(Create(request).message()), HasSubstr("MixtralForCausalLM"));
  request = Request("a");
  request.mutable_spec()->mutable_train()->set_max_sequence_length(8192);
  EXPECT_THAT(std::string(Create(request).message()), HasSubstr("max_sequence_length"));
  machine_.host_available_bytes = int64_t{100} << 20;
  const absl::Status too_large = Create(Request("a"));
  EXPECT_EQ(too_large.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(too_large), "HOST_MEMORY_EXCEEDED");
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(stub_->ListJobs(&context, {}, &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 0) << "a refused job leaves nothing";
}

TEST_F(JobServiceTest, ValidateOnlyMakesNothing) {
  v1::CreateJobRequest request = Request("a");
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_TRUE(job.plan().fits());
  ASSERT_TRUE(Create(Request("a")).ok());
  EXPECT_EQ(ReasonOf(Create(request)), "RESOURCE_EXISTS");
}

TEST_F(JobServiceTest, PlansAlsoWhatCannotBeTrainedYet) {
  v1::PlanJobRequest request;
  request.set_model_config_json(kConfig);
  v1::Plan plan;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->PlanJob(&context, request, &plan).ok());
  EXPECT_TRUE(plan.trainable());
  EXPECT_GT(plan.parameter_count(), 0);
  request.set_model_config_json("{}");
  grpc::ClientContext context2;
  EXPECT_EQ(stub_->PlanJob(&context2, request, &plan).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(JobServiceTest, ListsInPages) {
  runner_.ready = false;
  int position = 0;
  for (const std::string id : {"a", "b", "c"}) {
    v1::Job job;
    ASSERT_TRUE(Create(Request(id), &job).ok());
    EXPECT_EQ(job.queue_position(), position++);
  }
  EXPECT_EQ(Get("jobs/c").queue_position(), 2);
  std::vector<std::string> names;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(stub_->ListJobs(&context, request, &response).ok());
    for (const v1::Job& job : response.jobs()) {
      names.push_back(job.name());
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names, ElementsAre("jobs/c", "jobs/b", "jobs/a"));
}

TEST_F(JobServiceTest, CancelsAJobThatWaitsAndRefusesOneThatEnded) {
  runner_.ready = false;
  ASSERT_TRUE(Create(Request("a")).ok());
  v1::Job job;
  ASSERT_TRUE(Cancel("jobs/a", &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(Cancel("jobs/a", &job).ok()) << "again";
  runner_.ready = true;
  ASSERT_TRUE(Create(Request("b")).ok());
  RunSteps(1);
  Succeed("jobs/b");
  EXPECT_EQ(ReasonOf(Cancel("jobs/b", &job)), "JOB_ENDED");
  EXPECT_EQ(Cancel("jobs/none", &job).code(), absl::StatusCode::kNotFound);
}

TEST_F(JobServiceTest, AWatchShowsEverythingAndEndsWithTheFinalJob) {
  ASSERT_TRUE(Create(Request("a")).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/a");
  const auto reader = stub_->WatchJob(&context, request);
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.snapshot().name(), "jobs/a");
  EXPECT_EQ(event.sequence(), 0);
  RunSteps(3);
  Succeed("jobs/a");
  int64_t sequence = 0;
  std::vector<int64_t> steps;
  while (reader->Read(&event) && !event.has_final()) {
    EXPECT_EQ(event.sequence(), ++sequence);
    if (event.has_step()) {
      steps.push_back(event.step().step());
    }
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(event.final().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(event.final().queue_position(), 0);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_TRUE(reader->Finish().ok());

  // From a cursor on, after the end.
  grpc::ClientContext context2;
  request.set_after_sequence(sequence - 1);
  const auto again = stub_->WatchJob(&context2, request);
  ASSERT_TRUE(again->Read(&event));
  EXPECT_EQ(event.snapshot().state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(again->Read(&event));
  EXPECT_EQ(event.sequence(), sequence);
  ASSERT_TRUE(again->Read(&event));
  EXPECT_TRUE(event.has_final());
  EXPECT_FALSE(again->Read(&event));

  grpc::ClientContext context3;
  request.set_after_sequence(sequence + 1);
  const auto wrong = stub_->WatchJob(&context3, request);
  EXPECT_FALSE(wrong->Read(&event));
  EXPECT_EQ(wrong->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(JobServiceTest, AQuietWatchHasHeartbeatsAndADrainTellsItsCursor) {
  runner_.ready = false;
  ASSERT_TRUE(Create(Request("a")).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/a");
  const auto reader = stub_->WatchJob(&context, request);
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_snapshot());
  std::atomic<bool> over = false;
  std::thread ticks([this, &over] {
    while (!over) {  // the write before may still be under way
      clock_.Advance(kHeartbeatInterval);
      hub_.Tick(clock_.MonotonicNow());
      hub_.WaitPast(hub_.Version(), absl::Milliseconds(50));
    }
  });
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_heartbeat());
  EXPECT_EQ(event.sequence(), 0);
  over = true;
  ticks.join();
  hub_.Drain();
  while (reader->Read(&event)) {
    EXPECT_TRUE(event.has_heartbeat());
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), "SERVER_DRAINING");
}

TEST_F(JobServiceTest, AReaderThatDoesNotReadIsToldItsCursor) {
  ASSERT_TRUE(Create(Request("a")).ok());
  Tick();
  // More than the window of a stream: large events.
  JobRecord record = *store_->Get("jobs/a");
  std::vector<v1::JobEvent> events(4000);
  for (v1::JobEvent& event : events) {
    event.mutable_state_change()->mutable_reason()->set_message(std::string(4000, 'x'));
  }
  ASSERT_TRUE(store_->Update(record, events).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/a");
  const auto reader = stub_->WatchJob(&context, request);
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));  // the stream is open
  // Time flies: whatever a reader needs to take a message is too long.
  std::atomic<bool> over = false;
  std::thread time([this, &over] {
    while (!over) {
      clock_.Advance(kSlowConsumerTimeout);
      hub_.Tick(clock_.MonotonicNow());
      std::this_thread::yield();
    }
  });
  int64_t last = 0;
  while (reader->Read(&event)) {
    EXPECT_TRUE(event.has_heartbeat() || event.sequence() == last + 1);
    last = event.has_heartbeat() ? last : event.sequence();
  }
  const grpc::Status status = reader->Finish();
  over = true;
  time.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(FromGrpcStatus(status)), "SLOW_CONSUMER");
}

TEST_F(JobServiceTest, LogsAreFollowedToTheirEnd) {
  ASSERT_TRUE(Create(Request("a")).ok());
  grpc::ClientContext context;
  v1::StreamLogsRequest request;
  request.set_name("jobs/a");
  request.set_follow(true);
  const auto reader = stub_->StreamLogs(&context, request);
  RunSteps(1);
  engine::v1::RunJobEvent line;
  line.set_log_line("hello from the engine");
  runner_.Emit(line);
  Succeed("jobs/a");
  std::string text;
  v1::LogChunk chunk;
  while (reader->Read(&chunk)) {
    EXPECT_EQ(chunk.offset_bytes(), static_cast<int64_t>(text.size()));
    text += chunk.data();
  }
  EXPECT_TRUE(chunk.end());
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(text, HasSubstr("hello from the engine"));
  EXPECT_THAT(text, HasSubstr("SUCCEEDED"));
}

TEST_F(JobServiceTest, AFollowerThatLeavesLetsTheServerStop) {
  runner_.ready = false;
  ASSERT_TRUE(Create(Request("a")).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/a");
  const auto reader = stub_->WatchJob(&context, request);
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server_->Shutdown();
  server_->Wait();
  while (hub_.OpenCount() > 0) {  // the executor may hold it for a moment more
    std::this_thread::yield();
  }
}

TEST_F(JobServiceTest, StreamsOfNoJobSayNotFound) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/none");
  v1::JobEvent event;
  const auto reader = stub_->WatchJob(&context, request);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace megatrain
