// checkpoint ls, create, rm, pin, unpin, verify, download; model export --checkpoint.

#include <atomic>
#include <filesystem>

#include "client/cli/app_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/crc32c.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kName[] = "jobs/a/checkpoints/step-00000002";

v1::Checkpoint MakeCheckpoint() {
  v1::Checkpoint checkpoint;
  checkpoint.set_name(kName);
  checkpoint.set_step(2);
  checkpoint.set_trigger(v1::CHECKPOINT_TRIGGER_PERIODIC);
  checkpoint.set_size_bytes(1536);
  return checkpoint;
}

class AppCheckpointsTest : public AppTest {
 protected:
  // CreateCheckpoint accepts; the job's next event is `event`.
  void SaveLeadsTo(v1::JobEvent event) {
    event.set_sequence(6);
    server_.checkpoints.create = [](const v1::CreateCheckpointRequest& request,
                                    v1::CreateCheckpointResponse& response) {
      EXPECT_EQ(request.parent(), "jobs/a");
      EXPECT_EQ(request.request_id().size(), 36u);
      *response.mutable_job() = MakeJob(v1::JOB_STATE_RUNNING);
      response.set_after_sequence(5);
      return grpc::Status::OK;
    };
    server_.jobs.watch = [event](grpc::ServerContext&, const v1::WatchJobRequest& request,
                                 auto& writer) {
      EXPECT_EQ(request.after_sequence(), 5);
      writer.Write(SnapshotOf(v1::JOB_STATE_RUNNING));
      writer.Write(event);
      return grpc::Status::OK;
    };
    StartServer();
  }

  // DeleteCheckpoint accepts and counts.
  void AcceptRemovals() {
    server_.checkpoints.remove = [this](const v1::DeleteCheckpointRequest& request,
                                        v1::DeleteCheckpointResponse&) {
      EXPECT_EQ(request.name(), kName);
      removed_count_ += request.validate_only() ? 0 : 1;
      return grpc::Status::OK;
    };
    StartServer();
  }

  std::atomic<int> removed_count_ = 0;
};

TEST_F(AppCheckpointsTest, LsTellsSizeTriggerAndWhatIsSpecial) {
  std::vector<v1::ListCheckpointsRequest> requests;
  server_.checkpoints.list = [&](const v1::ListCheckpointsRequest& request,
                                 v1::ListCheckpointsResponse& response) {
    requests.push_back(request);
    v1::Checkpoint& checkpoint = *response.add_checkpoints();
    checkpoint = MakeCheckpoint();
    if (request.page_token().empty()) {
      response.set_next_page_token("more");
      checkpoint.set_pinned(true);
      checkpoint.set_best(true);
      checkpoint.set_evaluation_loss(0.25);
    } else {
      checkpoint.set_damage("weights.bin: byte 7");
    }
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"checkpoint", "ls", "a"}), 0) << err();
  EXPECT_THAT(out(),
              AllOf(StartsWith("CHECKPOINT       STEP  TRIGGER   SIZE      EVAL"),
                    HasSubstr("a/step-00000002  2     PERIODIC  1.50 KiB  0.2500"),
                    HasSubstr("pinned, best\n"), HasSubstr("damaged: weights.bin: byte 7\n")));
  EXPECT_EQ(requests[0].parent(), "jobs/a");
  EXPECT_EQ(requests[1].page_token(), "more");
  EXPECT_EQ(Run({"checkpoint", "ls", "-o", "name"}), 0);
  EXPECT_EQ(out(), std::string(kName) + "\n" + kName + "\n");
  EXPECT_EQ(requests[2].parent(), "jobs/-");
  EXPECT_EQ(Run({"checkpoint", "ls", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["checkpoints"][0]["trigger"],
            "CHECKPOINT_TRIGGER_PERIODIC");
}

TEST_F(AppCheckpointsTest, CreateWaitsForTheName) {
  v1::JobEvent event;
  *event.mutable_checkpoint() = MakeCheckpoint();
  SaveLeadsTo(event);
  EXPECT_EQ(Run({"checkpoint", "create", "a"}), 0) << err();
  EXPECT_EQ(out(), std::string(kName) + " saved, 1.50 KiB\n");
  EXPECT_EQ(Run({"checkpoint", "create", "a", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["name"], kName);
  server_.jobs.watch = nullptr;
  EXPECT_EQ(Run({"checkpoint", "create", "a", "--detach"}), 0) << "it watches nothing";
  EXPECT_EQ(out(), "jobs/a is going to be saved\n");
}

TEST_F(AppCheckpointsTest, AFullDiskIsSevenAndTellsWhatToDo) {
  v1::JobEvent event;
  v1::JobReason& reason = *event.mutable_checkpoint_failure()->mutable_reason();
  reason.set_code("DISK_FULL");
  reason.set_message("cannot write /state: no space left on device");
  SaveLeadsTo(event);
  EXPECT_EQ(Run({"checkpoint", "create", "a"}), 7);
  EXPECT_THAT(err(),
              AllOf(HasSubstr("error: cannot write /state"),
                    HasSubstr("try: free space on the server's disk, then megatrain resume a"),
                    HasSubstr("reason: DISK_FULL")));
  EXPECT_THAT(out(), IsEmpty());
}

TEST_F(AppCheckpointsTest, RmAsksWhoIsThere) {
  AcceptRemovals();
  EXPECT_EQ(Run({"checkpoint", "rm", "a/step-00000002"}), 2) << "nobody is there";
  EXPECT_THAT(err(), HasSubstr("try: checkpoint rm a/step-00000002 --yes"));
  std::string question;
  bool answer = false;
  environment_.ask = [&](const std::string& asked) {
    question = asked;
    return answer;
  };
  EXPECT_EQ(Run({"checkpoint", "rm", "a/step-00000002"}), 1);
  EXPECT_THAT(err(), HasSubstr("nothing is removed"));
  EXPECT_EQ(question, std::string("remove ") + kName + "?");
  EXPECT_EQ(removed_count_, 0);
  answer = true;
  EXPECT_EQ(Run({"checkpoint", "rm", "a/step-00000002"}), 0);
  EXPECT_EQ(removed_count_, 1);
}

TEST_F(AppCheckpointsTest, RmWithoutQuestions) {
  AcceptRemovals();
  EXPECT_EQ(Run({"checkpoint", "rm", "a/step-00000002", "--dry-run"}), 0) << err();
  EXPECT_EQ(out(), std::string(kName) + " can be removed\n");
  EXPECT_EQ(removed_count_, 0);
  EXPECT_EQ(Run({"checkpoint", "rm", kName, "--yes"}), 0);
  EXPECT_EQ(out(), std::string(kName) + " removed\n");
  EXPECT_EQ(removed_count_, 1);
}

TEST_F(AppCheckpointsTest, PinAndUnpin) {
  server_.checkpoints.update = [](const v1::UpdateCheckpointRequest& request,
                                  v1::Checkpoint& checkpoint) {
    EXPECT_EQ(request.update_mask().paths_size(), 1);
    EXPECT_EQ(request.update_mask().paths(0), "pinned");
    EXPECT_EQ(request.request_id().size(), 36u);
    checkpoint = MakeCheckpoint();
    checkpoint.set_pinned(request.checkpoint().pinned());
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"checkpoint", "pin", "a/step-00000002", "-o", "json"}), 0) << err();
  EXPECT_EQ(nlohmann::json::parse(out())["pinned"], true);
  EXPECT_EQ(Run({"checkpoint", "unpin", "a/step-00000002"}), 0);
  EXPECT_EQ(out(), std::string(kName) + " unpinned\n");
}

TEST_F(AppCheckpointsTest, VerifyTellsAFaultAndWhatElseThereIs) {
  std::atomic<bool> valid = true;
  server_.checkpoints.verify = [&](const v1::VerifyCheckpointRequest& request,
                                   v1::VerifyCheckpointResponse& response) {
    EXPECT_EQ(request.name(), kName);
    response.set_valid(valid);
    response.set_failure(valid ? "" : "weights.bin: its CRC-32C differs");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"checkpoint", "verify", "a/step-00000002"}), 0) << err();
  EXPECT_EQ(out(), std::string(kName) + " is valid\n");
  valid = false;
  EXPECT_EQ(Run({"checkpoint", "verify", "a/step-00000002"}), 1);
  EXPECT_THAT(err(), AllOf(HasSubstr(": weights.bin: its CRC-32C differs\n"),
                           HasSubstr("try: megatrain checkpoint ls a"),
                           HasSubstr("reason: CHECKPOINT_CORRUPT")));
  EXPECT_THAT(out(), IsEmpty());
}

TEST_F(AppCheckpointsTest, DownloadPrintsTheFolder) {
  server_.checkpoints.get = [](const v1::GetCheckpointRequest& request, v1::Checkpoint& response) {
    EXPECT_EQ(request.name(), kName);
    response = MakeCheckpoint();
    v1::CheckpointFile& file = *response.add_files();
    file.set_path("manifest.json");
    file.set_size_bytes(2);
    file.set_crc32c(Crc32c("{}"));
    return grpc::Status::OK;
  };
  server_.checkpoints.read = [](grpc::ServerContext&, const v1::ReadCheckpointRequest&,
                                auto& writer) {
    v1::ReadCheckpointResponse piece;
    piece.set_data("{}");
    piece.set_crc32c(Crc32c("{}"));
    writer.Write(piece);
    return grpc::Status::OK;
  };
  StartServer();
  const std::string folder = folder_ + "/fetched";
  EXPECT_EQ(Run({"checkpoint", "download", "a/step-00000002", folder + "/"}), 0) << err();
  EXPECT_EQ(out(), std::filesystem::path(folder).lexically_normal().string() + "\n");
  EXPECT_THAT(err(), HasSubstr("1 files, 1.50 KiB, checked"));
  EXPECT_EQ(std::filesystem::file_size(folder + "/manifest.json"), 2u);
  EXPECT_EQ(Run({"checkpoint", "download", "a/step-00000002", folder}), 6) << "it is there";
  EXPECT_THAT(err(), HasSubstr("reason: PATH_EXISTS"));
}

TEST_F(AppCheckpointsTest, WhatNamesNoCheckpointIsUsage) {
  for (const char* verb : {"rm", "pin", "unpin", "verify", "download"}) {
    EXPECT_EQ(Run({"checkpoint", verb, "a"}), 2) << verb;
  }
  EXPECT_EQ(Run({"checkpoint", "verify", "a"}), 2);
  EXPECT_THAT(err(), AllOf(HasSubstr("\"a\" names no checkpoint"),
                           HasSubstr("try: JOB/CHECKPOINT, such as")));
}

TEST_F(AppCheckpointsTest, ExportTakesACheckpointsWeights) {
  server_.models.export_model = [](const v1::ExportModelRequest& request,
                                   v1::ExportModelResponse& response) {
    response.set_name(request.name());
    response.set_path(request.path());
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "export", "--checkpoint", "a/step-00000002", "/tmp/out"}), 0) << err();
  EXPECT_EQ(out(), "/tmp/out\n");
  EXPECT_THAT(err(), HasSubstr(std::string(kName) + ": 0 B written"));
  EXPECT_EQ(Run({"model", "export", "m", "--checkpoint", "a/step-00000002", "/tmp/out"}), 2);
  EXPECT_EQ(Run({"model", "export", "m"}), 2);
  EXPECT_EQ(Run({"model", "export"}), 2);
  EXPECT_THAT(err(), HasSubstr("export wants NAME PATH, or --checkpoint NAME PATH"));
}

}  // namespace
}  // namespace megatrain
