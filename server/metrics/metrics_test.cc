// What is scraped over HTTP, and what promtool says of it.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/server_metrics.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// GET /metrics by hand; the body.
std::string Scrape(const std::string& address) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &target.sin_addr);
  EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&target), sizeof(target)), 0);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(connection, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char piece[4096];
  for (ssize_t count; (count = read(connection, piece, sizeof(piece))) > 0;) {
    answer.append(piece, static_cast<size_t>(count));
  }
  close(connection);
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

v1::Job RunningJob() {
  v1::Job job;
  job.set_name("jobs/addition");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_planned_step_count(120);
  return job;
}

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto endpoint = MetricsEndpoint::Start(
        "127.0.0.1:0", {metrics_.registry(), std::make_shared<ProcessMetrics>()});
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
  }

  // Without the families that prometheus-cpp adds of its own.
  std::string Text() {
    std::string ours;
    std::istringstream lines(Scrape(endpoint_->address()));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("exposer_") == std::string::npos) {
        ours += line + "\n";
      }
    }
    return ours;
  }

  ServerMetrics metrics_{"0.1.0", "1.51"};
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

TEST_F(MetricsTest, EverySeriesIsThereFromTheStart) {
  const std::string text = Text();
  for (const std::string stream : {"compute", "h2d", "d2h", "optimizer", "device_update",
                                   "state_h2d", "state_d2h", "state_update"}) {
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("megatrain_stream_busy_seconds_total{gpu=\"0\",stream=\"",
                                       stream, "\"} 0\n")));
    for (const std::string reason :
         {"weights_ready", "slot_free", "gradient_ready", "slab_free", "unit_updated",
          "state_ready", "activations", "stash_free", "norm", "no_work"}) {
      EXPECT_THAT(text,
                  HasSubstr(absl::StrCat("megatrain_stream_wait_seconds_total{gpu=\"0\",reason=\"",
                                         reason, "\",stream=\"", stream, "\"} 0\n")));
    }
  }
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("megatrain_jobs{state=\"queued\"} 0\n"),
            HasSubstr("megatrain_jobs_finished_total{outcome=\"failed\"} 0\n"),
            HasSubstr("megatrain_jobs_submitted_total 0\n"), HasSubstr("megatrain_steps_total 0\n"),
            HasSubstr("megatrain_server_state{state=\"starting\"} 1\n"),
            HasSubstr("megatrain_build_info{grpc=\"1.51\",version=\"0.1.0\"} 1\n"),
            HasSubstr("process_resident_memory_bytes "), HasSubstr("process_start_time_seconds ")));
}

TEST_F(MetricsTest, FiguresOfANewEngineAreAddedToThoseOfTheOld) {
  engine::v1::StreamFigures figures;
  engine::v1::StreamFigure& compute = *figures.add_streams();
  compute.set_stream("compute");
  compute.set_busy_seconds(7.5);
  (*compute.mutable_wait_seconds())["norm"] = 2;
  metrics_.OnFigures(figures);
  compute.set_busy_seconds(9.5);
  metrics_.OnFigures(figures);
  compute.set_busy_seconds(1);  // a new process
  (*compute.mutable_wait_seconds())["norm"] = 0.5;
  metrics_.OnFigures(figures);
  EXPECT_THAT(
      Text(),
      AllOf(HasSubstr("megatrain_stream_busy_seconds_total{gpu=\"0\",stream=\"compute\"} 10.5\n"),
            HasSubstr("megatrain_stream_wait_seconds_total{gpu=\"0\",reason=\"norm\","
                      "stream=\"compute\"} 2.5\n")));
}

TEST_F(MetricsTest, AJobHasSeriesWhileItRuns) {
  v1::StepRecord step;
  step.set_step(5);
  step.set_loss(0.25);
  step.set_gradient_norm(std::nan(""));
  step.set_token_count(250);
  step.set_step_seconds(1.5);
  metrics_.OnChange(RunningJob());
  metrics_.OnStep(RunningJob(), step);
  EXPECT_THAT(
      Text(),
      AllOf(HasSubstr("megatrain_job_loss{job_id=\"addition\",split=\"train\"} 0.25\n"),
            HasSubstr("megatrain_job_step{job_id=\"addition\"} 5\n"),
            HasSubstr("megatrain_job_planned_steps{job_id=\"addition\"} 120\n"),
            HasSubstr("megatrain_tokens_total{split=\"train\"} 250\n"),
            HasSubstr("megatrain_step_duration_seconds_count 1\n"), Not(HasSubstr("Nan\n"))));
  v1::Job ended = RunningJob();
  ended.set_state(v1::JOB_STATE_SUCCEEDED);
  metrics_.OnEnd(ended);
  EXPECT_THAT(Text(), AllOf(Not(HasSubstr("job_id")),
                            HasSubstr("megatrain_jobs_finished_total{outcome=\"succeeded\"} 1\n"),
                            HasSubstr("megatrain_steps_total 1\n")));
}

TEST_F(MetricsTest, CheckpointsAreCountedAndAJobThatHoldsIsSeen) {
  EXPECT_THAT(Text(),
              HasSubstr("megatrain_checkpoints_total{outcome=\"failed\",trigger=\"drain\"} 0"));
  engine::v1::CheckpointSaved saved;
  saved.set_trigger(v1::CHECKPOINT_TRIGGER_PAUSE);
  saved.set_size_bytes(1000);
  saved.set_save_seconds(7);
  saved.set_stall_seconds(6.5);
  metrics_.OnCheckpoint(RunningJob(), saved);
  v1::CheckpointFailure failure;
  failure.set_trigger(v1::CHECKPOINT_TRIGGER_PERIODIC);
  metrics_.OnCheckpointFailure(RunningJob(), failure);
  metrics_.OnDrained(RunningJob());
  metrics_.OnRecovered(RunningJob());
  metrics_.CountRetention(500);
  std::vector<JobRecord> jobs(1);
  jobs[0].job = RunningJob();
  jobs[0].job.set_phase("holding");
  metrics_.OnActiveJobs(jobs);
  EXPECT_THAT(
      Text(),
      AllOf(HasSubstr("megatrain_checkpoints_total{outcome=\"committed\",trigger=\"pause\"} 1\n"),
            HasSubstr("megatrain_checkpoints_total{outcome=\"failed\",trigger=\"periodic\"} 1\n"),
            HasSubstr("megatrain_checkpoint_written_bytes_total 1000\n"),
            HasSubstr("megatrain_checkpoint_stall_seconds_total 6.5\n"),
            HasSubstr("megatrain_checkpoint_duration_seconds_bucket{le=\"15\"} 1\n"),
            HasSubstr("megatrain_preemptions_total{reason=\"drain\"} 1\n"),
            HasSubstr("megatrain_recoveries_total{outcome=\"failed\"} 1\n"),
            HasSubstr("megatrain_retention_deleted_bytes_total{area=\"checkpoints\"} 500\n"),
            HasSubstr("megatrain_job_holding 1\n")));
  metrics_.OnActiveJobs({});
  EXPECT_THAT(Text(), HasSubstr("megatrain_job_holding 0\n"));
}

TEST_F(MetricsTest, JobsAreCountedByState) {
  std::vector<JobRecord> jobs(2);
  jobs[0].job = RunningJob();
  jobs[1].job.set_state(v1::JOB_STATE_QUEUED);
  jobs[1].job.mutable_create_time()->set_seconds(1'700'000'000);
  metrics_.OnActiveJobs(jobs);
  EXPECT_THAT(Text(), AllOf(HasSubstr("megatrain_jobs{state=\"running\"} 1\n"),
                            HasSubstr("megatrain_jobs{state=\"queued\"} 1\n"),
                            HasSubstr("megatrain_queue_oldest_job_timestamp_seconds 17")));
  metrics_.OnActiveJobs({});
  EXPECT_THAT(Text(), AllOf(HasSubstr("megatrain_jobs{state=\"running\"} 0\n"),
                            Not(HasSubstr("oldest_job_timestamp_seconds 1"))));
}

TEST_F(MetricsTest, ATakenPortIsAClearError) {
  const auto second = MetricsEndpoint::Start(endpoint_->address(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(endpoint_->address()));
}

TEST_F(MetricsTest, PromtoolFindsNothingWrong) {
  if (!std::filesystem::exists("/usr/bin/promtool")) {
    GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
  }
  metrics_.OnStep(RunningJob(), v1::StepRecord());
  const std::string path = absl::StrCat(::testing::TempDir(), "/metrics.txt");
  std::ofstream(path) << Text();
  EXPECT_EQ(std::system(absl::StrCat("/usr/bin/promtool check metrics < ", path).c_str()), 0);
}

}  // namespace
}  // namespace megatrain
