// Streams of jobs over a real socket: watches and logs.

#include "server/api/job_streams.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>
#include <thread>
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

using JobStreamsTest = JobServiceTest;

TEST_F(JobStreamsTest, AWatchShowsEverythingAndEndsWithTheFinalJob) {
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

TEST_F(JobStreamsTest, AQuietWatchHasHeartbeatsAndADrainTellsItsCursor) {
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

TEST_F(JobStreamsTest, AReaderThatDoesNotReadIsToldItsCursor) {
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

TEST_F(JobStreamsTest, LogsAreFollowedToTheirEnd) {
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

TEST_F(JobStreamsTest, AFollowerThatLeavesLetsTheServerStop) {
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

TEST_F(JobStreamsTest, StreamsOfNoJobSayNotFound) {
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
