#include "server/engine/run_job_call.h"

#include <utility>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

constexpr size_t kMaxQueuedEvents = 256;

}  // namespace

std::shared_ptr<RunJobCall> RunJobCall::Make(const engine::v1::RunJobRequest& request) {
  std::shared_ptr<RunJobCall> call(new RunJobCall(request));
  call->self_ = call;
  return call;
}

void RunJobCall::Send(engine::v1::RunJobEvent event) {
  MutexLock lock(&mutex_);
  MT_CHECK(!ended_);
  while (!cancelled_ && events_.size() >= kMaxQueuedEvents) {
    written_.Wait(&mutex_);
  }
  if (!cancelled_) {
    events_.push_back(std::move(event));
    Advance();
  }
}

void RunJobCall::End(const grpc::Status& status) {
  MutexLock lock(&mutex_);
  ended_ = true;
  end_status_ = status;
  Advance();
}

void RunJobCall::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  written_.NotifyAll();
}

bool RunJobCall::cancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

void RunJobCall::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  writing_ = false;
  events_.pop_front();
  if (!ok) {  // the client is gone: nothing more can be written
    cancelled_ = true;
    events_.clear();
  }
  Advance();
  written_.NotifyAll();
}

// Starts the next write, or finishes when there is nothing left to write and the job has ended.
void RunJobCall::Advance() {
  if (writing_) {
    return;
  }
  if (!events_.empty()) {
    writing_ = true;
    StartWrite(&events_.front());
  } else if (ended_ && !finished_) {
    finished_ = true;
    Finish(end_status_);
  }
}

}  // namespace megatrain
