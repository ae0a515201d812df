// The real engine process is killed, paused and resumed; jobs go on with the same bits.

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/data/prepared_data_for_test.h"
#include "server/engine/engine_process_for_test.h"

namespace megatrain {
namespace {

using engine::v1::RunJobEvent;
using engine::v1::RunJobRequest;

class EngineResumeTest : public EngineProcessTest {
 protected:
  RunJobRequest RequestWithCheckpoints(const std::string& output) {
    RunJobRequest request = Request(output);
    request.set_checkpoint_folder(folder_ + "/" + output + "_checkpoints");
    request.set_model_fingerprint("model");
    v1::TrainingSpec& spec = *request.mutable_spec();
    spec.mutable_train()->set_epochs(8);
    spec.mutable_checkpoint()->set_every_steps(3);
    spec.mutable_checkpoint()->set_keep_last(100);
    spec.mutable_checkpoint()->set_at_end(true);
    spec.mutable_evaluation()->set_split(0.1);
    spec.mutable_evaluation()->set_every_steps(4);
    return request;
  }

  // Sets what the daemon sets after a death: the newest valid checkpoint, if there is one.
  void StartFromNewest(RunJobRequest& request) {
    request.clear_resume_checkpoint_path();
    const auto listing = ListCheckpoints(request.checkpoint_folder(), files_);
    if (listing.ok() && !listing->valid.empty()) {
      request.set_resume_checkpoint_path(listing->valid.back().path);
    }
  }

  // On a socket of its own: gRPC may still hold a connection to the one that died.
  void Restart() {
    socket_ = folder_ + "/engine" + std::to_string(++restarts_) + ".sock";
    Start();
    GetEngine();
  }

  // Losses by step; a step that is told of twice must have the same one.
  static void Note(const std::vector<RunJobEvent>& events, std::vector<double>& losses) {
    for (const v1::StepRecord& step : StepsOf(events)) {
      const size_t index = static_cast<size_t>(step.step()) - 1;
      ASSERT_LE(index, losses.size());
      if (index == losses.size()) {
        losses.push_back(step.loss());
      }
      EXPECT_EQ(losses[index], step.loss()) << step.step();
    }
  }

  static std::string Weights(const RunJobRequest& request) {
    std::ifstream file(request.output_path() + "/model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  grpc::Status Save(v1::CheckpointTrigger trigger, bool then_stop) {
    grpc::ClientContext context;
    engine::v1::SaveCheckpointRequest request;
    request.set_trigger(trigger);
    request.set_then_stop(then_stop);
    engine::v1::SaveCheckpointResponse response;
    return stub_->SaveCheckpoint(&context, request, &response);
  }

  static std::vector<RunJobEvent> ReadUntilStep(grpc::ClientReader<RunJobEvent>& reader,
                                                int64_t step) {
    std::vector<RunJobEvent> events;
    RunJobEvent event;
    while (reader.Read(&event)) {
      events.push_back(event);
      if (event.has_step() && event.step().step() == step) {
        break;
      }
    }
    return events;
  }

  PosixFileSystem files_;
  int restarts_ = 0;
};

// R12, R31: at whatever a job is when it dies, what the next process ends with has the same bits.
TEST_F(EngineResumeTest, KilledAnywhereItEndsWithTheSameBits) {
  Start();
  const RunJobRequest whole = RequestWithCheckpoints("whole");
  const std::vector<RunJobEvent> whole_events = RunToEnd(whole);
  ASSERT_TRUE(whole_events.back().has_finished()) << whole_events.back().ShortDebugString();
  std::vector<double> wanted;
  Note(whole_events, wanted);
  ASSERT_EQ(wanted.size(), 40u);

  const uint32_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  RunJobRequest request = RequestWithCheckpoints("killed");
  std::vector<double> losses;
  for (int kills = 0; kills < 12; ++kills) {
    StartFromNewest(request);
    const auto reader = RunJob(request);
    // After any event: at a step, in a save, in an evaluation, while updates run.
    const int64_t events_wanted = std::uniform_int_distribution<int64_t>(1, 60)(random);
    std::vector<RunJobEvent> events;
    RunJobEvent event;
    while (static_cast<int64_t>(events.size()) < events_wanted && reader->Read(&event)) {
      events.push_back(event);
    }
    Note(events, losses);
    Kill();
    context_->TryCancel();
    ReadAll(*reader);
    Restart();
    if (std::filesystem::exists(request.output_path())) {
      break;  // it was complete before it was killed
    }
    std::filesystem::remove_all(request.output_path() + ".partial");
  }
  if (!std::filesystem::exists(request.output_path())) {
    StartFromNewest(request);
    const std::vector<RunJobEvent> events = RunToEnd(request);
    ASSERT_TRUE(events.back().has_finished()) << events.back().ShortDebugString();
    Note(events, losses);
  }
  ASSERT_LE(losses.size(), wanted.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i], wanted[i]) << i;
  }
  EXPECT_TRUE(Weights(request) == Weights(whole));
  const auto killed = ListCheckpoints(request.checkpoint_folder(), files_);
  const auto uninterrupted = ListCheckpoints(whole.checkpoint_folder(), files_);
  EXPECT_EQ(killed->valid.back().manifest.progress, uninterrupted->valid.back().manifest.progress);
  // The log of all figures is one of them.
  EXPECT_TRUE(killed->valid.back().manifest.files == uninterrupted->valid.back().manifest.files);
}

TEST_F(EngineResumeTest, PausesOnRequestAndGoesOn) {
  Start();
  RunJobRequest request = RequestWithCheckpoints("output");
  request.mutable_spec()->mutable_train()->set_epochs(0);
  request.mutable_spec()->mutable_train()->set_steps(100'000);
  request.mutable_spec()->mutable_checkpoint()->set_every_steps(0);
  GetEngine();
  EXPECT_EQ(Save(v1::CHECKPOINT_TRIGGER_PAUSE, true).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  const auto reader = RunJob(request);
  ReadUntilStep(*reader, 2);
  ASSERT_TRUE(Save(v1::CHECKPOINT_TRIGGER_MANUAL, false).ok());
  RunJobEvent event;
  while (reader->Read(&event) && !event.has_checkpoint()) {
  }
  EXPECT_EQ(event.checkpoint().trigger(), v1::CHECKPOINT_TRIGGER_MANUAL);
  EXPECT_GT(event.checkpoint().size_bytes(), 0);
  ASSERT_TRUE(Save(v1::CHECKPOINT_TRIGGER_PAUSE, true).ok());
  const std::vector<RunJobEvent> events = ReadAll(*reader);
  ASSERT_TRUE(end_status_.ok()) << end_status_.error_message();
  ASSERT_TRUE(events.back().has_paused()) << events.back().ShortDebugString();
  const std::string id = events.back().paused().checkpoint_id();
  EXPECT_GT(events.back().paused().peak_host_bytes(), 0);
  EXPECT_FALSE(std::filesystem::exists(request.output_path()));
  EXPECT_FALSE(GetEngine().busy());

  // Another process goes on after the step of the pause.
  Kill();
  Restart();
  request.set_resume_checkpoint_path(request.checkpoint_folder() + "/" + id);
  const auto second = RunJob(request);
  while (second->Read(&event) && !event.has_started()) {
  }
  EXPECT_EQ(event.started().resumed_step(), *StepOfCheckpointId(id));
  while (second->Read(&event) && !event.has_step()) {
  }
  EXPECT_EQ(event.step().step(), *StepOfCheckpointId(id) + 1);
  context_->TryCancel();
  ReadAll(*second);
}

TEST_F(EngineResumeTest, SigtermSavesTheStateOfARunningJob) {
  Start();
  RunJobRequest request = RequestWithCheckpoints("output");
  request.mutable_spec()->mutable_train()->set_epochs(0);
  request.mutable_spec()->mutable_train()->set_steps(1'000'000);
  request.mutable_spec()->mutable_checkpoint()->set_every_steps(0);
  const auto reader = RunJob(request);
  ReadUntilStep(*reader, 2);
  kill(pid_, SIGTERM);
  const std::vector<RunJobEvent> events = ReadAll(*reader);
  const int status = WaitForEnd(pid_);
  pid_ = -1;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_TRUE(events.back().has_paused()) << events.back().ShortDebugString();
  const auto listing = ListCheckpoints(request.checkpoint_folder(), files_);
  ASSERT_EQ(listing->valid.size(), 1u);
  EXPECT_EQ(listing->valid[0].id, events.back().paused().checkpoint_id());
  EXPECT_EQ(listing->valid[0].manifest.trigger, CheckpointTrigger::kDrain);
}

// A drain or a pause does not wait for all rows of an evaluation.
TEST_F(EngineResumeTest, SigtermInterruptsAnEvaluation) {
  Start();
  RunJobRequest request = RequestWithCheckpoints("output");
  request.set_data_path(WritePreparedData("rows_" + name_, RandomRows(8000, 12, 64, 7)));
  request.mutable_spec()->mutable_evaluation()->set_split(0.9);
  request.mutable_spec()->mutable_evaluation()->set_every_steps(1);
  const auto reader = RunJob(request);
  RunJobEvent event;
  while (reader->Read(&event) && event.phase() != "evaluating") {
  }
  kill(pid_, SIGTERM);
  const std::vector<RunJobEvent> events = ReadAll(*reader);
  EXPECT_EQ(WaitForEnd(pid_), 0);
  pid_ = -1;
  ASSERT_TRUE(events.back().has_paused()) << events.back().ShortDebugString();
  const auto listing = ListCheckpoints(request.checkpoint_folder(), files_);
  ASSERT_EQ(listing->valid.size(), 1u);
  EXPECT_EQ(listing->valid[0].manifest.progress.step, 1);
  EXPECT_FALSE(listing->valid[0].manifest.progress.last_evaluation.has_value());
}

TEST_F(EngineResumeTest, HoldsWhileTheDiskRefusesAndTriesAgainWhenAsked) {
  Start();
  RunJobRequest request = RequestWithCheckpoints("output");
  request.mutable_spec()->mutable_train()->set_epochs(0);
  request.mutable_spec()->mutable_train()->set_steps(1'000'000);
  request.mutable_spec()->clear_checkpoint();
  // The disk that the folder lies on is not there.
  const std::string disk = folder_ + "/disk";
  std::filesystem::create_symlink(disk, request.checkpoint_folder());
  const auto reader = RunJob(request);
  ReadUntilStep(*reader, 2);
  ASSERT_TRUE(Save(v1::CHECKPOINT_TRIGGER_MANUAL, false).ok());
  RunJobEvent event;
  while (reader->Read(&event) && !event.has_checkpoint_failed()) {
  }
  ASSERT_TRUE(event.has_checkpoint_failed());
  EXPECT_EQ(event.checkpoint_failed().trigger(), v1::CHECKPOINT_TRIGGER_MANUAL);
  EXPECT_NE(event.checkpoint_failed().reason().message().find(request.checkpoint_folder()),
            std::string::npos);
  const int64_t step = event.checkpoint_failed().step();
  EXPECT_TRUE(GetEngine().busy());

  std::filesystem::create_directory(disk);
  ASSERT_TRUE(Save(v1::CHECKPOINT_TRIGGER_MANUAL, false).ok());
  while (reader->Read(&event) && !event.has_checkpoint()) {
    EXPECT_FALSE(event.has_step());
  }
  EXPECT_EQ(event.checkpoint().step(), step);
  while (reader->Read(&event) && !event.has_step()) {
  }
  EXPECT_EQ(event.step().step(), step + 1);

  // One that holds can be ended, too.
  std::filesystem::remove_all(disk);
  ASSERT_TRUE(Save(v1::CHECKPOINT_TRIGGER_MANUAL, false).ok());
  while (reader->Read(&event) && !event.has_checkpoint_failed()) {
  }
  context_->TryCancel();
  ReadAll(*reader);
  EXPECT_EQ(end_status_.error_code(), grpc::StatusCode::CANCELLED);
  while (GetEngine().busy()) {
  }
}

TEST_F(EngineResumeTest, ADamagedCheckpointIsNamed) {
  Start();
  RunJobRequest request = RequestWithCheckpoints("output");
  ASSERT_TRUE(RunToEnd(request).back().has_finished());
  StartFromNewest(request);
  std::filesystem::remove_all(request.output_path());
  std::fstream damaged(request.resume_checkpoint_path() + "/weights_hi.bin",
                       std::ios::binary | std::ios::in | std::ios::out);
  damaged.seekp(1234);
  damaged.put('\x55');
  damaged.put('\x66');
  damaged.close();
  const std::vector<RunJobEvent> events = RunToEnd(request);
  ASSERT_TRUE(events.back().has_failed());
  EXPECT_EQ(events.back().failed().code(), "CHECKPOINT_CORRUPT");
  EXPECT_NE(events.back().failed().message().find("weights_hi.bin: bytes 0 to"), std::string::npos)
      << events.back().failed().message();
  request.set_model_fingerprint("other");
  EXPECT_EQ(RunToEnd(request).back().failed().code(), "FAILED_PRECONDITION");
}

}  // namespace
}  // namespace megatrain
