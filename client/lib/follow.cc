#include "client/lib/follow.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/error_text.h"
#include "client/lib/message_stream.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// One follow: opens streams until one of them ends as it should.
template <typename Message>
class Follower {
 public:
  virtual ~Follower() = default;

  absl::Status Run() {
    bool was_connected = false;
    for (int failures = 0;;) {
      bool done = false;
      const absl::Status end = ReadOneStream(was_connected, failures, done);
      if (done || !IsWorthATry(end) || (end.ok() && EndsByItself())) {
        return end;
      }
      ++failures;
      was_connected = was_connected || received_;
      if (!was_connected && failures >= connection_.options().attempts) {
        return connection_.Explain(end, options_.heartbeat_timeout);
      }
      if (received_) {
        Lost(end);
      }
      received_ = false;
      connection_.interruption().WaitFor(
          std::min(Connection::Backoff(failures, options_.first_pause, options_.max_pause),
                   connection_.Remaining()));
    }
  }

 protected:
  Follower(Connection& connection, const FollowOptions& options)
      : connection_(connection), options_(options) {}

  // The stream from the cursor on.
  virtual std::unique_ptr<grpc::ClientAsyncReader<Message>> Open(grpc::ClientContext* context,
                                                                 grpc::CompletionQueue* queue) = 0;
  // Takes a message and moves the cursor; true when it is the last one.
  virtual bool Take(const Message& message) = 0;
  // A stream that ends well without a last message has told everything.
  virtual bool EndsByItself() const { return false; }
  virtual void Lost(const absl::Status& why) {}
  // Nothing is there to be read at the moment, `resumed` after a new stream was caught up.
  virtual void Idle(bool resumed) {}

  Connection& connection_;
  const FollowOptions options_;

 private:
  static bool IsWorthATry(const absl::Status& end) {
    return end.ok() || end.code() == absl::StatusCode::kUnavailable ||
           DescribeError(end).reason == "SLOW_CONSUMER";
  }

  // `done` when nothing is left to try; then the result is Run's.
  absl::Status ReadOneStream(bool resumed, int& failures, bool& done) {
    using Next = typename MessageStream<Message>::Next;
    const Clock& clock = connection_.clock();
    MessageStream<Message> stream(
        [this](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
          return Open(context, queue);
        },
        clock);
    absl::Duration last_sign = clock.MonotonicNow();
    for (;;) {
      const Next next = stream.Wait(options_.tick);
      if (next == Next::kEnd) {
        return stream.status();
      }
      if (next == Next::kMessage) {
        received_ = true;
        failures = 0;
        last_sign = clock.MonotonicNow();
        done = Take(stream.message());
        if (done) {
          return absl::OkStatus();
        }
      } else {
        const bool caught_up = resumed && received_;
        resumed = resumed && !caught_up;
        Idle(caught_up);
        if (clock.MonotonicNow() - last_sign > options_.heartbeat_timeout) {
          return absl::UnavailableError(absl::StrCat(
              "no sign of life for ", absl::FormatDuration(options_.heartbeat_timeout)));
        }
      }
      if (absl::Status going_on = connection_.CheckContinue(); !going_on.ok()) {
        done = true;
        return going_on;
      }
    }
  }

  bool received_ = false;  // something on the present stream
};

class JobFollower final : public Follower<v1::JobEvent> {
 public:
  JobFollower(Connection& connection, const std::string& name, FollowSink& sink,
              const FollowOptions& options)
      : Follower(connection, options), sink_(sink) {
    request_.set_name(name);
  }

  const std::optional<v1::Job>& final_job() const { return final_job_; }

 private:
  std::unique_ptr<grpc::ClientAsyncReader<v1::JobEvent>> Open(
      grpc::ClientContext* context, grpc::CompletionQueue* queue) override {
    return connection_.stub<v1::JobService::Stub>().PrepareAsyncWatchJob(context, request_, queue);
  }

  bool Take(const v1::JobEvent& event) override {
    if (event.has_final()) {
      final_job_ = event.final();
      sink_.OnEvent(event);
      return true;
    }
    if (event.has_snapshot()) {
      sink_.OnEvent(event);  // what is now; the events before it follow, so the cursor stays
    } else if (!event.has_heartbeat() && event.sequence() > request_.after_sequence()) {
      request_.set_after_sequence(event.sequence());
      ++fresh_count_;
      sink_.OnEvent(event);
    }
    return false;
  }

  void Lost(const absl::Status& why) override {
    fresh_count_ = 0;
    sink_.OnLost(why);
  }

  void Idle(bool resumed) override {
    if (resumed) {
      sink_.OnReconnected(fresh_count_);
    }
    sink_.OnTick();
  }

  v1::WatchJobRequest request_;
  FollowSink& sink_;
  std::optional<v1::Job> final_job_;
  int fresh_count_ = 0;  // events since the stream was opened
};

class CheckpointFollower final : public Follower<v1::JobEvent> {
 public:
  CheckpointFollower(Connection& connection, v1::WatchJobRequest cursor,
                     const FollowOptions& options)
      : Follower(connection, options), request_(std::move(cursor)) {}

  // After a Run that ended well.
  const absl::StatusOr<v1::Checkpoint>& result() const { return result_; }

 private:
  std::unique_ptr<grpc::ClientAsyncReader<v1::JobEvent>> Open(
      grpc::ClientContext* context, grpc::CompletionQueue* queue) override {
    return connection_.stub<v1::JobService::Stub>().PrepareAsyncWatchJob(context, request_, queue);
  }

  bool Take(const v1::JobEvent& event) override {
    if (event.has_final()) {
      return Miss(event.final().state(), "JOB_ENDED");
    }
    if (event.has_snapshot() || event.sequence() <= request_.after_sequence()) {
      return false;
    }
    request_.set_after_sequence(event.sequence());
    if (event.has_checkpoint()) {
      result_ = event.checkpoint();
      return true;
    }
    if (event.has_checkpoint_failure()) {
      const v1::JobReason& reason = event.checkpoint_failure().reason();
      const bool full = reason.code() == "DISK_FULL";
      result_ = WithClientReason(full ? absl::ResourceExhaustedError(reason.message())
                                      : absl::InternalError(reason.message()),
                                 reason.code());
      return true;
    }
    return event.has_state_change() && event.state_change().state() == v1::JOB_STATE_PAUSED &&
           Miss(v1::JOB_STATE_PAUSED, "JOB_NOT_RUNNING");
  }

  // `reason`: the server's, had it been asked so late.
  bool Miss(v1::JobState state, std::string_view reason) {
    const std::string word = v1::JobState_Name(state).substr(sizeof("JOB_STATE_") - 1);
    result_ = WithClientReason(absl::FailedPreconditionError(absl::StrCat(
                                   request_.name(), " became ", word, " before it was saved")),
                               reason);
    return true;
  }

  v1::WatchJobRequest request_;
  absl::StatusOr<v1::Checkpoint> result_;
};

class LogFollower final : public Follower<v1::LogChunk> {
 public:
  LogFollower(Connection& connection, v1::StreamLogsRequest request,
              const std::function<void(std::string_view)>& write, const FollowOptions& options)
      : Follower(connection, options), request_(std::move(request)), write_(write) {}

 private:
  std::unique_ptr<grpc::ClientAsyncReader<v1::LogChunk>> Open(
      grpc::ClientContext* context, grpc::CompletionQueue* queue) override {
    return connection_.stub<v1::JobService::Stub>().PrepareAsyncStreamLogs(context, request_,
                                                                           queue);
  }

  bool Take(const v1::LogChunk& chunk) override {
    const int64_t seen = std::max<int64_t>(0, request_.offset_bytes() - chunk.offset_bytes());
    if (seen < static_cast<int64_t>(chunk.data().size())) {
      write_(std::string_view(chunk.data()).substr(static_cast<size_t>(seen)));
      request_.set_offset_bytes(chunk.offset_bytes() + static_cast<int64_t>(chunk.data().size()));
    }
    return chunk.end();
  }

  bool EndsByItself() const override { return !request_.follow(); }

  v1::StreamLogsRequest request_;
  const std::function<void(std::string_view)>& write_;
};

}  // namespace

absl::StatusOr<v1::Job> FollowJob(Connection& connection, const std::string& name, FollowSink& sink,
                                  const FollowOptions& options) {
  JobFollower follower(connection, name, sink, options);
  MT_RETURN_IF_ERROR(follower.Run());
  return *follower.final_job();
}

absl::StatusOr<v1::Checkpoint> FollowCheckpoint(Connection& connection, v1::WatchJobRequest cursor,
                                                const FollowOptions& options) {
  CheckpointFollower follower(connection, std::move(cursor), options);
  MT_RETURN_IF_ERROR(follower.Run());
  return follower.result();
}

absl::Status FollowLog(Connection& connection, v1::StreamLogsRequest request,
                       const std::function<void(std::string_view)>& write,
                       const FollowOptions& options) {
  return LogFollower(connection, std::move(request), write, options).Run();
}

}  // namespace megatrain
