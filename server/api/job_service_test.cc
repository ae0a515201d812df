// Jobs created, listed, planned and cancelled over a real socket.

#include "server/api/job_service.h"

#include <grpcpp/grpcpp.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/job_service_for_test.h"
#include "server/api/status_for_test.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  machine_.host_available_bytes = int64_t{10} << 20;
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
  request.set_model_config_json(kToyConfig);
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

TEST_F(JobServiceTest, ALengthIsOneThatTheModelHasPositionsFor) {
  std::string config = kToyConfig;
  config.replace(config.find("4096"), 4, "512");
  std::ofstream(folder_ + "/model/config.json") << config;
  v1::CreateJobRequest request = Request("a");
  request.mutable_spec()->mutable_train()->clear_max_sequence_length();
  v1::Job job;
  const absl::Status status = Create(request, &job);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(job.spec().train().max_sequence_length(), 512) << "nobody asked for more";

  v1::PlanJobRequest plan_request;
  plan_request.set_model_config_json(config);
  v1::Plan plan;
  grpc::ClientContext context;
  EXPECT_TRUE(stub_->PlanJob(&context, plan_request, &plan).ok());
  plan_request.mutable_spec()->mutable_train()->set_max_sequence_length(513);
  grpc::ClientContext context2;
  const absl::Status refused = FromGrpcStatus(stub_->PlanJob(&context2, plan_request, &plan));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << "as the job would be";
  EXPECT_THAT(std::string(refused.message()), HasSubstr("512 positions"));
}

TEST_F(JobServiceTest, PlansForAnotherMachineAndSaysWhy) {
  v1::PlanJobRequest request;
  request.set_model_config_json(kToyConfig);
  request.set_machine("rtx3090-128g");
  v1::Plan plan;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->PlanJob(&context, request, &plan).ok());
  EXPECT_THAT(plan.machine(), HasSubstr("RTX 3090"));
  EXPECT_GT(plan.step_seconds(), 0);
  EXPECT_FALSE(plan.binding_resource().empty());
  EXPECT_FALSE(plan.planes().empty());
  for (const std::string machine : {"pdp-11", "{\"speeds\": {}}"}) {
    request.set_machine(machine);
    grpc::ClientContext other;
    EXPECT_EQ(stub_->PlanJob(&other, request, &plan).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << machine;
  }
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

}  // namespace
}  // namespace megatrain
