#include "client/cli/app_for_test.h"

#include <filesystem>
#include <fstream>

#include "client/cli/app.h"

namespace megatrain {

v1::Job MakeJob(v1::JobState state) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(state);
  job.set_attempt(1);
  job.set_planned_step_count(2);
  job.mutable_spec()->set_model("models/m");
  job.mutable_plan()->set_fits(true);
  job.mutable_plan()->set_verdict("it fits");
  if (state == v1::JOB_STATE_SUCCEEDED) {
    job.set_output_version("models/out/versions/1");
    job.mutable_last_step()->set_step(2);
    job.mutable_last_step()->set_loss(0.5);
  }
  if (state == v1::JOB_STATE_FAILED) {
    job.mutable_reason()->set_code("ENGINE_DIED");
    job.mutable_reason()->set_message("the engine died: signal 9");
  }
  return job;
}

v1::JobEvent SnapshotOf(v1::JobState state) {
  v1::JobEvent event;
  *event.mutable_snapshot() = MakeJob(state);
  return event;
}

v1::JobEvent StepEvent(int64_t step, double loss) {
  v1::JobEvent event;
  event.set_sequence(step);
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(loss);
  return event;
}

v1::JobEvent FinalOf(v1::JobState state) {
  v1::JobEvent event;
  event.set_sequence(100);
  *event.mutable_final() = MakeJob(state);
  return event;
}

AppTest::AppTest() {
  folder_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  variables_["XDG_STATE_HOME"] = folder_ + "/state";
  job_file_ = FileOf("job.yaml", "model: models/m\ndataset: datasets/d\ntrain: {steps: 2}\n");
}

std::string AppTest::FileOf(const std::string& name, const std::string& content) const {
  std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
  return folder_ + "/" + name;
}

int AppTest::Run(const std::vector<std::string>& arguments) {
  out_.str("");
  err_.str("");
  if (server_started_) {
    variables_["MEGATRAIN_ADDRESS"] = server_.address();
  }
  return RunApp(arguments, environment_);
}

void AppTest::StartServer() {
  server_.Start();
  server_started_ = true;
}

void AppTest::AcceptJobs(v1::JobState state) {
  server_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
    created_.push_back(request);
    job = MakeJob(v1::JOB_STATE_QUEUED);
    return grpc::Status::OK;
  };
  server_.jobs.watch = [state](grpc::ServerContext&, const v1::WatchJobRequest&, auto& writer) {
    writer.Write(SnapshotOf(v1::JOB_STATE_RUNNING));
    writer.Write(StepEvent(1, 4));
    writer.Write(StepEvent(2, 0.5));
    writer.Write(FinalOf(state));
    return grpc::Status::OK;
  };
  StartServer();
}

}  // namespace megatrain
