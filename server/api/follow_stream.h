// Streams that follow something: the newest message is pulled when there is news, never queued.

#ifndef SERVER_API_FOLLOW_STREAM_H_
#define SERVER_API_FOLLOW_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "server/api/status_conversion.h"
#include "server/executor/executor.h"

namespace megatrain {

// An open stream as FollowHub sees it. Thread-safe; calls return at once.
class Follower {
 public:
  virtual ~Follower() = default;

  // There may be something to send.
  virtual void OnNews() = 0;

  // Time passed: heartbeats, and the end of a reader that does not read. `now` is monotonic.
  virtual void OnTick(absl::Duration now) = 0;

  // The server stops.
  virtual void OnDrain() = 0;
};

// The open streams, by what they follow. Thread-safe.
class FollowHub {
 public:
  void Add(const std::string& topic, std::weak_ptr<Follower> follower);

  void Notify(const std::string& topic);
  void Tick(absl::Duration now);

  // Ends every stream, now and later ones.
  void Drain();

  // Returns after the next Notify of any topic since `version` was read, or after `timeout`.
  int64_t Version() const;
  void WaitPast(int64_t version, absl::Duration timeout);

  int OpenCount() const;

 private:
  // The living ones; forgets the others.
  std::vector<std::shared_ptr<Follower>> Living(const std::string* topic)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::multimap<std::string, std::weak_ptr<Follower>> followers_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

// The errors that a stream ends with, with the cursor from which a client goes on.
absl::Status SlowConsumer(const std::string& cursor);
absl::Status StreamDrained(const std::string& cursor);

// Nothing was sent for so long: a heartbeat is due.
inline constexpr absl::Duration kHeartbeatInterval = absl::Seconds(15);
// One message was not taken for so long: the reader is slow.
inline constexpr absl::Duration kSlowConsumerTimeout = absl::Seconds(30);

// What a stream sends. Called from one thread at a time, never from gRPC's; may block.
template <typename Message>
class FollowSource {
 public:
  virtual ~FollowSource() = default;

  // The next message; none while there is none. An error ends the stream.
  virtual absl::StatusOr<std::optional<Message>> Next() = 0;

  // Nothing comes after `message`.
  virtual bool IsLast(const Message& message) const = 0;

  virtual Message Heartbeat() const = 0;

  // From where a client goes on that got everything so far.
  virtual std::string Cursor() const = 0;
};

// One stream: at most one message in flight, pulled from its source on the executor, so that
// memory does not grow with a slow reader. Owns itself until gRPC is done with it.
template <typename Message>
class FollowStream final : public grpc::ServerWriteReactor<Message>, public Follower {
 public:
  // Return the result from the service's method.
  static FollowStream* Start(Executor& executor, FollowHub& hub, const std::string& topic,
                             absl::Duration now, std::unique_ptr<FollowSource<Message>> source) {
    const std::shared_ptr<FollowStream> stream(new FollowStream(executor, now, std::move(source)));
    stream->self_ = stream;
    hub.Add(topic, stream);
    stream->OnNews();
    return stream.get();
  }

  void OnNews() override {
    MutexLock lock(&mutex_);
    news_ = true;
    Pull();
  }

  void OnTick(absl::Duration now) override {
    MutexLock lock(&mutex_);
    now_ = now;
    const absl::Duration quiet = now - last_activity_;
    if (writing_ && quiet >= kSlowConsumerTimeout) {
      End(SlowConsumer(cursor_));
    } else if (!writing_ && !pulling_ && !ended_ && quiet >= kHeartbeatInterval) {
      message_ = source_->Heartbeat();
      Write();
    }
  }

  void OnDrain() override {
    MutexLock lock(&mutex_);
    End(StreamDrained(cursor_));
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    last_activity_ = now_;
    if (!ok) {
      End(absl::CancelledError("the client is gone"));
    } else if (last_) {
      End(absl::OkStatus());
    } else {
      Pull();
    }
  }

  void OnCancel() override {
    MutexLock lock(&mutex_);
    End(absl::CancelledError("the client left the stream"));
  }

  void OnDone() override { const std::shared_ptr<FollowStream> last = std::move(self_); }

 private:
  FollowStream(Executor& executor, absl::Duration now,
               std::unique_ptr<FollowSource<Message>> source)
      : executor_(executor), source_(std::move(source)), now_(now), last_activity_(now) {
    cursor_ = source_->Cursor();
  }

  // Asks the source when nothing is under way and something may be there.
  void Pull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!news_ || writing_ || pulling_ || ended_) {
      return;
    }
    pulling_ = true;
    news_ = false;
    executor_.Run([self = self_] { self->PullNow(); });
  }

  void PullNow() {
    absl::StatusOr<std::optional<Message>> next = source_->Next();
    MutexLock lock(&mutex_);
    pulling_ = false;
    if (!next.ok()) {
      End(next.status());
    } else if (next->has_value()) {
      news_ = true;  // there may be more
      message_ = **std::move(next);
      last_ = source_->IsLast(message_);
      Write();
    } else {
      Pull();
    }
  }

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!ended_) {
      cursor_ = source_->Cursor();
      writing_ = true;
      last_activity_ = now_;
      this->StartWrite(&message_);
    }
  }

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!ended_) {
      ended_ = true;
      this->Finish(ToGrpcStatus(status));
    }
  }

  Executor& executor_;
  std::shared_ptr<FollowStream> self_;
  const std::unique_ptr<FollowSource<Message>> source_;  // used by PullNow, or while none is out
  Mutex mutex_;
  Message message_ ABSL_GUARDED_BY(mutex_);     // in flight while writing_
  std::string cursor_ ABSL_GUARDED_BY(mutex_);  // behind message_
  absl::Duration now_ ABSL_GUARDED_BY(mutex_);  // of the last tick
  absl::Duration last_activity_ ABSL_GUARDED_BY(mutex_);
  bool news_ ABSL_GUARDED_BY(mutex_) = false;
  bool pulling_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // SERVER_API_FOLLOW_STREAM_H_
