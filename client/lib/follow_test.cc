#include "client/lib/follow.h"

#include <atomic>
#include <functional>
#include <thread>

#include "client/lib/error_text.h"
#include "client/lib/interruption.h"
#include "client/lib/scripted_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobEvent Snapshot() {
  v1::JobEvent event;
  event.mutable_snapshot()->set_name("jobs/a");
  return event;
}

v1::JobEvent StepEvent(int64_t sequence) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  event.mutable_step()->set_step(sequence);
  return event;
}

v1::JobEvent Final(int64_t sequence) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  event.mutable_final()->set_state(v1::JOB_STATE_SUCCEEDED);
  return event;
}

class RecordingSink final : public FollowSink {
 public:
  void OnEvent(const v1::JobEvent& event) override {
    if (event.has_step()) {
      steps.push_back(event.step().step());
    }
    if (on_event) {
      on_event();
    }
  }
  void OnLost(const absl::Status& why) override { losses.emplace_back(why.message()); }
  void OnReconnected(int caught_up_count) override { caught_up.push_back(caught_up_count); }
  void OnTick() override {
    ++tick_count;
    if (on_tick) {
      on_tick();
    }
  }

  std::vector<int64_t> steps;
  std::vector<std::string> losses;
  std::vector<int> caught_up;
  int tick_count = 0;
  std::function<void()> on_event;
  std::function<void()> on_tick;
};

class FollowTest : public ::testing::Test {
 protected:
  Connection Connect(absl::Duration timeout = absl::InfiniteDuration()) {
    ConnectionOptions options;
    options.address = server_.address();
    options.timeout = timeout;
    options.attempts = 2;
    return Connection(options, clock_, interruption_);
  }

  static FollowOptions Fast() {
    FollowOptions options;
    options.first_pause = absl::Milliseconds(1);
    options.max_pause = absl::Milliseconds(2);
    options.tick = absl::Milliseconds(1);
    return options;
  }

  SystemClock clock_;
  Interruption interruption_;
  ScriptedServer server_;
  RecordingSink sink_;
};

TEST_F(FollowTest, EndsWithTheFinalEvent) {
  server_.jobs.watch = [](grpc::ServerContext&, const v1::WatchJobRequest& request, auto& writer) {
    EXPECT_EQ(request.name(), "jobs/a");
    writer.Write(Snapshot());
    writer.Write(StepEvent(1));
    writer.Write(Final(2));
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = Connect();
  const absl::StatusOr<v1::Job> job = FollowJob(connection, "jobs/a", sink_, Fast());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(sink_.steps, ElementsAre(1));
}

TEST_F(FollowTest, TakesUpABrokenStreamWithoutRepeatsOrGaps) {
  std::atomic<int> stream = 0;
  std::atomic<bool> caught_up = false;
  sink_.on_tick = [&] { caught_up = caught_up || !sink_.caught_up.empty(); };
  server_.jobs.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request,
                           auto& writer) -> grpc::Status {
    writer.Write(Snapshot());
    switch (stream++) {
      case 0:
        EXPECT_EQ(request.after_sequence(), 0);
        writer.Write(StepEvent(1));
        writer.Write(StepEvent(2));
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "link cut");
      case 1:  // an end without a final event is no end
        EXPECT_EQ(request.after_sequence(), 2);
        writer.Write(StepEvent(2));  // a server that repeats what the client has
        writer.Write(StepEvent(3));
        return grpc::Status::OK;
      case 2:
        EXPECT_EQ(request.after_sequence(), 3);
        writer.Write(StepEvent(4));
        return ErrorWithReason(grpc::StatusCode::RESOURCE_EXHAUSTED, "too slow", "SLOW_CONSUMER");
      default:
        EXPECT_EQ(request.after_sequence(), 4);
        writer.Write(StepEvent(5));
        writer.Write(StepEvent(6));
        while (!caught_up) {
          std::this_thread::yield();
        }
        writer.Write(Final(7));
        return grpc::Status::OK;
    }
  };
  server_.Start();
  Connection connection = Connect();
  const absl::StatusOr<v1::Job> job = FollowJob(connection, "jobs/a", sink_, Fast());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(sink_.steps, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(sink_.losses.size(), 3u);
  ASSERT_FALSE(sink_.caught_up.empty());
  EXPECT_EQ(sink_.caught_up.back(), 2);
}

TEST_F(FollowTest, OutlivesARestartOfTheServer) {
  std::atomic<int> stream = 0;
  std::atomic<bool> got_step = false;
  sink_.on_event = [&] { got_step = got_step || !sink_.steps.empty(); };
  server_.jobs.watch = [&](grpc::ServerContext& context, const v1::WatchJobRequest& request,
                           auto& writer) -> grpc::Status {
    writer.Write(Snapshot());
    if (stream++ == 0) {
      writer.Write(StepEvent(1));
      while (!context.IsCancelled()) {
        std::this_thread::yield();
      }
      return grpc::Status::OK;
    }
    EXPECT_EQ(request.after_sequence(), 1);
    writer.Write(StepEvent(2));
    writer.Write(Final(3));
    return grpc::Status::OK;
  };
  server_.Start();
  std::thread restart([&] {
    while (!got_step) {
      std::this_thread::yield();
    }
    server_.Stop();
    server_.Start();
  });
  Connection connection = Connect();
  FollowOptions options = Fast();
  options.max_pause = absl::Milliseconds(50);
  const absl::StatusOr<v1::Job> job = FollowJob(connection, "jobs/a", sink_, options);
  restart.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(sink_.steps, ElementsAre(1, 2));
}

TEST_F(FollowTest, ASilentStreamIsGivenUp) {
  std::atomic<int> stream = 0;
  server_.jobs.watch = [&](grpc::ServerContext& context, const v1::WatchJobRequest&,
                           auto& writer) -> grpc::Status {
    writer.Write(Snapshot());
    if (stream++ > 0) {
      writer.Write(Final(1));
      return grpc::Status::OK;
    }
    while (!context.IsCancelled()) {
      std::this_thread::yield();
    }
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = Connect();
  FollowOptions options = Fast();
  options.heartbeat_timeout = absl::Milliseconds(30);
  ASSERT_TRUE(FollowJob(connection, "jobs/a", sink_, options).ok());
  ASSERT_EQ(sink_.losses.size(), 1u);
  EXPECT_THAT(sink_.losses[0], HasSubstr("no sign of life"));
}

TEST_F(FollowTest, AHeartbeatKeepsAStreamAlive) {
  server_.jobs.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest&, auto& writer) {
    writer.Write(Snapshot());
    v1::JobEvent heartbeat;
    heartbeat.mutable_heartbeat();
    Interruption never;
    for (int i = 0; i < 20; ++i) {
      never.WaitFor(absl::Milliseconds(20));
      writer.Write(heartbeat);
    }
    writer.Write(Final(1));
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = Connect();
  FollowOptions options = Fast();
  options.heartbeat_timeout = absl::Milliseconds(300);  // less than all the heartbeats take
  ASSERT_TRUE(FollowJob(connection, "jobs/a", sink_, options).ok());
  EXPECT_THAT(sink_.losses, IsEmpty());
}

TEST_F(FollowTest, AnInterruptionDetaches) {
  std::atomic<bool> cancelled = false;
  server_.jobs.watch = [&](grpc::ServerContext& context, const v1::WatchJobRequest&, auto& writer) {
    writer.Write(Snapshot());
    while (!context.IsCancelled()) {
      std::this_thread::yield();
    }
    cancelled = true;
    return grpc::Status::OK;
  };
  server_.Start();
  sink_.on_event = [&] { interruption_.Trigger(); };
  Connection connection = Connect();
  EXPECT_EQ(FollowJob(connection, "jobs/a", sink_, Fast()).status().code(),
            absl::StatusCode::kCancelled);
  server_.Stop();
  EXPECT_TRUE(cancelled) << "the stream is closed, not left behind";
}

TEST_F(FollowTest, EndsAtTheTimeout) {
  server_.jobs.watch = [&](grpc::ServerContext& context, const v1::WatchJobRequest&, auto& writer) {
    writer.Write(Snapshot());
    while (!context.IsCancelled()) {
      std::this_thread::yield();
    }
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = Connect(absl::Milliseconds(50));
  EXPECT_EQ(FollowJob(connection, "jobs/a", sink_, Fast()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(FollowTest, OtherErrorsAreFinal) {
  std::atomic<int> stream = 0;
  server_.jobs.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest&, auto&) {
    ++stream;
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "jobs/a does not exist");
  };
  server_.Start();
  Connection connection = Connect();
  EXPECT_EQ(FollowJob(connection, "jobs/a", sink_, Fast()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(stream, 1);
}

TEST_F(FollowTest, AServerThatWasNeverThereIsGivenUp) {
  server_.Start();
  Connection connection = Connect();
  server_.Stop();
  const absl::Status status = FollowJob(connection, "jobs/a", sink_, Fast()).status();
  EXPECT_EQ(DescribeError(status).reason, "SERVER_UNREACHABLE");
}

v1::JobEvent CheckpointEvent(int64_t sequence) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  event.mutable_checkpoint()->set_step(sequence);
  return event;
}

class FollowCheckpointTest : public FollowTest {
 protected:
  // What comes of a save that was asked for after event 5, when the job goes on with `events`.
  absl::StatusOr<v1::Checkpoint> SaveFollowedBy(const std::vector<v1::JobEvent>& events) {
    server_.jobs.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request,
                             auto& writer) -> grpc::Status {
      if (request.after_sequence() == 5) {
        writer.Write(Snapshot());
        writer.Write(CheckpointEvent(5));  // of before: a server that repeats it
        writer.Write(StepEvent(6));
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "link cut");
      }
      EXPECT_EQ(request.after_sequence(), 6);
      writer.Write(Snapshot());
      for (const v1::JobEvent& event : events) {
        writer.Write(event);
      }
      return grpc::Status::OK;
    };
    server_.Start();
    Connection connection = Connect();
    v1::WatchJobRequest cursor;
    cursor.set_name("jobs/a");
    cursor.set_after_sequence(5);
    return FollowCheckpoint(connection, cursor, Fast());
  }
};

TEST_F(FollowCheckpointTest, GivesTheFirstOneAfterTheCursor) {
  const auto checkpoint = SaveFollowedBy({StepEvent(7), CheckpointEvent(8), CheckpointEvent(9)});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->step(), 8);
}

TEST_F(FollowCheckpointTest, AFullDiskIsToldWithItsReason) {
  v1::JobEvent event;
  event.set_sequence(7);
  v1::JobReason& reason = *event.mutable_checkpoint_failure()->mutable_reason();
  reason.set_code("DISK_FULL");
  reason.set_message("cannot write /state/x: no space left on device");
  const absl::Status status = SaveFollowedBy({event}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DescribeError(status).reason, "DISK_FULL");
  EXPECT_EQ(status.message(), reason.message());
}

TEST_F(FollowCheckpointTest, AJobThatEndsFirstSavesNothing) {
  const absl::Status status = SaveFollowedBy({Final(7)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("jobs/a became SUCCEEDED before"));
  EXPECT_EQ(DescribeError(status).reason, "JOB_ENDED");
}

v1::LogChunk Chunk(int64_t offset, const std::string& data, bool end = false) {
  v1::LogChunk chunk;
  chunk.set_offset_bytes(offset);
  chunk.set_data(data);
  chunk.set_end(end);
  return chunk;
}

TEST_F(FollowTest, WritesEachByteOfALogOnce) {
  std::atomic<int> stream = 0;
  server_.jobs.logs = [&](grpc::ServerContext&, const v1::StreamLogsRequest& request,
                          auto& writer) -> grpc::Status {
    if (stream++ == 0) {
      EXPECT_EQ(request.offset_bytes(), 0);
      writer.Write(Chunk(0, "one\n"));
      writer.Write(Chunk(4, ""));
      writer.Write(Chunk(4, "two\n"));
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut");
    }
    EXPECT_EQ(request.offset_bytes(), 8);
    writer.Write(Chunk(4, "two\nthree\n"));  // begins before the cursor
    writer.Write(Chunk(14, "", true));
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = Connect();
  v1::StreamLogsRequest request;
  request.set_name("jobs/a");
  request.set_follow(true);
  std::string log;
  const absl::Status status =
      FollowLog(connection, request, [&](std::string_view text) { log += text; }, Fast());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(log, "one\ntwo\nthree\n");
}

TEST_F(FollowTest, ALogThatIsNotFollowedEndsWhereItIs) {
  std::atomic<int> stream = 0;
  server_.jobs.logs = [&](grpc::ServerContext&, const v1::StreamLogsRequest&, auto& writer) {
    ++stream;
    writer.Write(Chunk(0, "one\n"));
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = Connect();
  std::string log;
  ASSERT_TRUE(FollowLog(connection, {}, [&](std::string_view text) { log += text; }, Fast()).ok());
  EXPECT_EQ(log, "one\n");
  EXPECT_EQ(stream, 1);
}

}  // namespace
}  // namespace megatrain
