#ifndef CLIENT_LIB_MESSAGE_STREAM_H_
#define CLIENT_LIB_MESSAGE_STREAM_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/lib/error_text.h"
#include "grpcpp/grpcpp.h"
#include "runtime/base/clock.h"

namespace megatrain {

// One server stream, read with a limit on each wait, by one thread.
template <typename Message>
class MessageStream {
 public:
  // Prepares the call, as the stub's PrepareAsync methods do.
  using Prepare = std::function<std::unique_ptr<grpc::ClientAsyncReader<Message>>(
      grpc::ClientContext*, grpc::CompletionQueue*)>;

  enum class Next { kMessage, kNothingYet, kEnd };

  // Starts the call. `clock` outlives the stream.
  MessageStream(const Prepare& prepare, const Clock& clock)
      : clock_(clock), reader_(prepare(&context_, &queue_)) {
    reader_->StartCall(TagOf(Step::kStart));
  }

  // Cancels the call if it has not ended.
  ~MessageStream() {
    context_.TryCancel();
    while (Wait(absl::Seconds(60)) != Next::kEnd) {
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  MessageStream(const MessageStream&) = delete;
  MessageStream& operator=(const MessageStream&) = delete;

  // Waits for the next message at most so long.
  Next Wait(absl::Duration limit) {
    if (ended_) {
      return Next::kEnd;
    }
    if (std::exchange(taken_, false)) {
      reader_->Read(&message_, TagOf(Step::kRead));
    }
    const auto deadline = absl::ToChronoTime(clock_.WallNow() + limit);
    void* tag = nullptr;
    bool ok = false;
    while (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      if (tag == TagOf(Step::kFinish)) {
        ended_ = true;
        return Next::kEnd;
      }
      if (!ok) {
        reader_->Finish(&status_, TagOf(Step::kFinish));
      } else if (tag == TagOf(Step::kRead)) {
        taken_ = true;
        return Next::kMessage;
      } else {
        reader_->Read(&message_, TagOf(Step::kRead));
      }
    }
    return Next::kNothingYet;
  }

  // After kMessage, until the next Wait.
  const Message& message() const { return message_; }

  // After kEnd.
  absl::Status status() const { return StatusFromRpc(status_); }

 private:
  enum class Step : intptr_t { kStart = 1, kRead, kFinish };

  static void* TagOf(Step step) {
    return reinterpret_cast<void*>(step);  // NOLINT(performance-no-int-to-ptr): a name, no address
  }

  const Clock& clock_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReader<Message>> reader_;
  Message message_;
  grpc::Status status_;
  bool taken_ = false;  // the last Wait has given a message: no read is under way
  bool ended_ = false;
};

}  // namespace megatrain

#endif  // CLIENT_LIB_MESSAGE_STREAM_H_
