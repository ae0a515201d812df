// Pauses, forks and checkpoints as clients see them.

#include "server/api/checkpoint_service.h"

#include <grpcpp/grpcpp.h>

#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/crc32c.h"
#include "server/api/job_service_for_test.h"
#include "server/api/status_for_test.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CheckpointServiceTest : public JobServiceTest {
 protected:
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::CheckpointService::Stub::*)(grpc::ClientContext*, const Request&,
                                                               Response*);

  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, const Request& request, Response* response) {
    grpc::ClientContext context;
    return FromGrpcStatus((checkpoint_stub_.get()->*method)(&context, request, response));
  }

  absl::Status Pause(const std::string& name, v1::Job* job) {
    grpc::ClientContext context;
    v1::PauseJobRequest request;
    request.set_name(name);
    return FromGrpcStatus(stub_->PauseJob(&context, request, job));
  }

  absl::Status Resume(const std::string& name, const std::string& checkpoint, v1::Job* job) {
    grpc::ClientContext context;
    v1::ResumeJobRequest request;
    request.set_name(name);
    request.set_checkpoint(checkpoint);
    return FromGrpcStatus(stub_->ResumeJob(&context, request, job));
  }

  absl::Status Fork(const v1::ForkJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    return FromGrpcStatus(stub_->ForkJob(&context, request, job));
  }

  // The engine saves the running job `jobs/{id}`.
  void EngineSaves(const std::string& id, int64_t step, const std::string& content = "weights") {
    const std::string checkpoint = MakeCheckpointFolder(folder_ + "/jobs/" + id + "/checkpoints",
                                                        {.step = step, .content = content});
    runner_.EmitCheckpoint(checkpoint, step);
    Tick();
  }

  std::vector<std::string> List(const std::string& parent) {
    v1::ListCheckpointsRequest request;
    request.set_parent(parent);
    v1::ListCheckpointsResponse response;
    EXPECT_TRUE(Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response).ok());
    std::vector<std::string> names;
    for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
      names.push_back(checkpoint.name());
    }
    return names;
  }

  static std::string Name(int64_t step) {
    return absl::StrCat("jobs/a/checkpoints/step-0000000", step);
  }
};

TEST_F(CheckpointServiceTest, AJobIsPausedAndGoesOnFromAnEarlierCheckpoint) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  EngineSaves("a", 1);
  EngineSaves("a", 2);
  v1::Job job;
  ASSERT_TRUE(Pause("jobs/a", &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(ReasonOf(Resume("jobs/a", Name(1), &job)), "JOB_NOT_PAUSED") << "not yet";
  EngineSaves("a", 3);
  runner_.Pause("step-00000003");
  Tick();
  EXPECT_EQ(Get("jobs/a").state(), v1::JOB_STATE_PAUSED);
  EXPECT_THAT(List("jobs/a"), ElementsAre(Name(3), Name(2)));
  EXPECT_EQ(Resume("jobs/a", Name(1), &job).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Resume("jobs/a", Name(2), &job).ok());
  RunSteps(1);
  EXPECT_EQ(Get("jobs/a").resumed_from(), Name(2));
  EXPECT_EQ(runner_.running->resume_checkpoint_path(),
            folder_ + "/jobs/a/checkpoints/step-00000002");
}

TEST_F(CheckpointServiceTest, AWaitingJobIsHeld) {
  runner_.ready = false;
  ASSERT_TRUE(Create(Request("a")).ok());
  v1::Job job;
  ASSERT_TRUE(Pause("jobs/a", &job).ok());
  EXPECT_TRUE(job.held());
  ASSERT_TRUE(Resume("jobs/a", "", &job).ok());
  EXPECT_FALSE(job.held());
  EXPECT_EQ(ReasonOf(Resume("jobs/a", "", &job)), "JOB_NOT_PAUSED");
}

TEST_F(CheckpointServiceTest, ASaveIsAskedForAndItsAnswerIsInTheEvents) {
  ASSERT_TRUE(Create(Request("a")).ok());
  v1::CreateCheckpointRequest request;
  request.set_parent("jobs/a");
  request.set_request_id("id-1");
  v1::CreateCheckpointResponse response;
  const auto create = [&] {
    return Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, &response);
  };
  EXPECT_EQ(ReasonOf(create()), "JOB_NOT_RUNNING");
  RunSteps(3);
  ASSERT_TRUE(create().ok());
  const int64_t sequence = response.after_sequence();
  EXPECT_EQ(runner_.save_asked->trigger, v1::CHECKPOINT_TRIGGER_MANUAL);
  EngineSaves("a", 3);
  ASSERT_TRUE(create().ok()) << "a repeat";
  EXPECT_EQ(response.after_sequence(), sequence);
  const auto events = store_->Events("jobs/a", sequence, 10);
  ASSERT_FALSE(events->empty());
  EXPECT_EQ(events->front().checkpoint().name(), Name(3));
}

TEST_F(CheckpointServiceTest, ACheckpointIsPinnedVerifiedAndDeleted) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  EngineSaves("a", 1);
  EngineSaves("a", 2);
  v1::UpdateCheckpointRequest update;
  update.mutable_checkpoint()->set_name(Name(1));
  update.mutable_checkpoint()->set_pinned(true);
  v1::Checkpoint checkpoint;
  const auto pin = [&] {
    return Call(&v1::CheckpointService::Stub::UpdateCheckpoint, update, &checkpoint);
  };
  EXPECT_EQ(pin().code(), absl::StatusCode::kInvalidArgument) << "no mask";
  update.mutable_update_mask()->add_paths("colour");
  EXPECT_EQ(pin().code(), absl::StatusCode::kInvalidArgument);
  update.mutable_update_mask()->set_paths(0, "pinned");
  ASSERT_TRUE(pin().ok());
  EXPECT_TRUE(checkpoint.pinned());
  v1::VerifyCheckpointRequest verify;
  verify.set_name(Name(1));
  v1::VerifyCheckpointResponse verified;
  const auto check = [&] {
    return Call(&v1::CheckpointService::Stub::VerifyCheckpoint, verify, &verified);
  };
  ASSERT_TRUE(check().ok());
  EXPECT_TRUE(verified.valid());
  std::ofstream(folder_ + "/jobs/a/checkpoints/step-00000001/weights_hi.bin") << "weightz";
  ASSERT_TRUE(check().ok());
  EXPECT_FALSE(verified.valid());
  v1::DeleteCheckpointRequest request;
  request.set_name(Name(1));
  v1::DeleteCheckpointResponse response;
  const auto remove = [&] {
    return Call(&v1::CheckpointService::Stub::DeleteCheckpoint, request, &response);
  };
  EXPECT_EQ(ReasonOf(remove()), "CHECKPOINT_PINNED");
  update.mutable_checkpoint()->set_pinned(false);
  ASSERT_TRUE(pin().ok());
  ASSERT_TRUE(remove().ok());
  EXPECT_THAT(List("jobs/a"), ElementsAre(Name(2)));
  EXPECT_THAT(List("jobs/-"), ElementsAre(Name(2)));
}

TEST_F(CheckpointServiceTest, VerificationsKeepNoOtherCallWaiting) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  EngineSaves("a", 1);
  std::promise<void> release;
  long_call_executor_.Run([&release] { release.get_future().wait(); });  // as a long one would
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {  // more than there are threads for other calls
    clients.emplace_back([this] {
      v1::VerifyCheckpointRequest request;
      request.set_name(Name(1));
      v1::VerifyCheckpointResponse response;
      EXPECT_TRUE(Call(&v1::CheckpointService::Stub::VerifyCheckpoint, request, &response).ok());
      EXPECT_TRUE(response.valid());
    });
  }
  EXPECT_EQ(Get("jobs/a").state(), v1::JOB_STATE_RUNNING);
  release.set_value();
  for (std::thread& client : clients) {
    client.join();
  }
}

TEST_F(CheckpointServiceTest, FilesAreReadInRanges) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  std::string content;
  for (int i = 0; i < 400'000; ++i) {
    absl::StrAppend(&content, i, ",");
  }
  EngineSaves("a", 1, content);
  v1::GetCheckpointRequest get;
  get.set_name(Name(1));
  v1::Checkpoint checkpoint;
  ASSERT_TRUE(Call(&v1::CheckpointService::Stub::GetCheckpoint, get, &checkpoint).ok());
  ASSERT_EQ(checkpoint.files_size(), 2);
  EXPECT_EQ(checkpoint.files(1).crc32c(), Crc32c(content));
  const auto read = [this](int64_t offset, int64_t limit, absl::Status* status) {
    grpc::ClientContext context;
    v1::ReadCheckpointRequest request;
    request.set_name(Name(1));
    request.set_path("weights_hi.bin");
    request.set_offset_bytes(offset);
    request.set_limit_bytes(limit);
    const auto reader = checkpoint_stub_->ReadCheckpoint(&context, request);
    std::string data;
    v1::ReadCheckpointResponse piece;
    while (reader->Read(&piece)) {
      EXPECT_EQ(piece.offset_bytes(), offset + static_cast<int64_t>(data.size()));
      EXPECT_EQ(piece.crc32c(), Crc32c(piece.data()));
      EXPECT_LE(piece.data().size(), size_t{1} << 20);
      data += piece.data();
    }
    *status = FromGrpcStatus(reader->Finish());
    return data;
  };
  absl::Status status;
  EXPECT_EQ(read(0, 0, &status), content);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(read(1'500'001, 0, &status), content.substr(1'500'001));
  EXPECT_EQ(read(7, 10, &status), content.substr(7, 10));
  const auto size_bytes = static_cast<int64_t>(content.size());
  EXPECT_THAT(read(size_bytes, 0, &status), IsEmpty());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(read(size_bytes + 1, 0, &status), IsEmpty());
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(CheckpointServiceTest, AJobTellsWhichCheckpointsAreThere) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  EngineSaves("a", 1);
  EngineSaves("a", 2);
  Succeed("jobs/a");
  EXPECT_EQ(Get("jobs/a").last_checkpoint(), Name(2));
  v1::DeleteCheckpointRequest request;
  request.set_name(Name(2));
  v1::DeleteCheckpointResponse response;
  ASSERT_TRUE(Call(&v1::CheckpointService::Stub::DeleteCheckpoint, request, &response).ok());
  EXPECT_EQ(Get("jobs/a").last_checkpoint(), Name(1));
  grpc::ClientContext list;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(stub_->ListJobs(&list, v1::ListJobsRequest(), &jobs).ok());
  EXPECT_EQ(jobs.jobs(0).last_checkpoint(), Name(1));
  grpc::ClientContext watch;
  v1::WatchJobRequest job;
  job.set_name("jobs/a");
  const auto stream = stub_->WatchJob(&watch, job);
  for (v1::JobEvent event; stream->Read(&event);) {
    EXPECT_TRUE(!event.has_snapshot() || event.snapshot().last_checkpoint() == Name(1));
    EXPECT_TRUE(!event.has_final() || event.final().last_checkpoint() == Name(1));
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(CheckpointServiceTest, APinnedOneIsNotWrittenOverInSilence) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  EngineSaves("a", 2);
  v1::Job job;
  ASSERT_TRUE(Pause("jobs/a", &job).ok());
  EngineSaves("a", 3);
  runner_.Pause("step-00000003");
  Tick();
  ASSERT_TRUE(catalog_->SetPinned({"Test", "", ""}, Name(3), true, "").ok());
  EXPECT_EQ(ReasonOf(Resume("jobs/a", Name(2), &job)), "CHECKPOINT_PINNED");
  ASSERT_TRUE(catalog_->SetPinned({"Test", "", ""}, Name(3), false, "").ok());
  ASSERT_TRUE(Resume("jobs/a", Name(2), &job).ok());
  RunSteps(1);
  EXPECT_THAT(*log_->Read("a", 0, 10000), HasSubstr("of later steps are removed when the next"));
  ASSERT_TRUE(catalog_->SetPinned({"Test", "", ""}, Name(3), true, "").ok()) << "too late";
  MakeCheckpointFolder(folder_ + "/jobs/a/checkpoints", {.step = 3, .create_seconds = 100});
  runner_.EmitCheckpoint("step-00000003", 3);
  Tick();
  EXPECT_THAT(*log_->Read("a", 0, 10000),
              HasSubstr("step-00000003 is committed, in place of the pinned one of that step"));
  EngineSaves("a", 4);
  ASSERT_TRUE(catalog_->SetPinned({"Test", "", ""}, Name(4), true, "").ok());
  runner_.EmitCheckpoint("step-00000004", 4);  // told once more: the very same
  Tick();
  EXPECT_THAT(*log_->Read("a", 0, 10000), Not(HasSubstr("step-00000004 is committed, in place")));
}

TEST_F(CheckpointServiceTest, AForkTakesTheStateOrTheWeights) {
  ASSERT_TRUE(Create(Request("a")).ok());
  RunSteps(3);
  EngineSaves("a", 2);
  Succeed("jobs/a");
  v1::ForkJobRequest request;
  request.set_checkpoint(Name(2));
  request.set_job_id("fork");
  request.set_request_id("id-1");
  v1::Job job;
  EXPECT_EQ(Fork(request, &job).code(), absl::StatusCode::kInvalidArgument) << "no mode";
  request.set_mode(v1::FORK_MODE_FULL_STATE);
  *request.mutable_spec() = Get("jobs/a").spec();
  request.mutable_spec()->mutable_train()->set_batch_rows(4);
  EXPECT_EQ(Fork(request, &job).code(), absl::StatusCode::kInvalidArgument) << "another order";
  *request.mutable_spec() = Get("jobs/a").spec();
  request.mutable_spec()->mutable_train()->set_micro_batch_rows(2);
  EXPECT_THAT(Fork(request, &job).message(), HasSubstr("micro_batch_rows")) << "the plan had 1";
  request.clear_spec();
  ASSERT_TRUE(Fork(request, &job).ok());
  EXPECT_EQ(job.spec().output(), "models/fork");
  EXPECT_EQ(job.forked_from(), Name(2));
  v1::Job again;
  ASSERT_TRUE(Fork(request, &again).ok()) << "a repeat";
  EXPECT_EQ(again.uid(), job.uid());
  RunSteps(1);
  EXPECT_EQ(runner_.running->resume_checkpoint_path(),
            folder_ + "/jobs/a/checkpoints/step-00000002");
  Succeed("jobs/fork");
  request.set_job_id("weights");
  request.set_request_id("id-2");
  request.set_mode(v1::FORK_MODE_WEIGHTS);
  ASSERT_TRUE(Fork(request, &job).ok());
  RunSteps(1);
  EXPECT_EQ(runner_.running->resume_checkpoint_path(), "");
  EXPECT_EQ(runner_.running->weights_checkpoint_path(),
            folder_ + "/jobs/a/checkpoints/step-00000002");
}

}  // namespace
}  // namespace megatrain
