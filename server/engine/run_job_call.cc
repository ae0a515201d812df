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

void RunJobCall::WaitUntilDone() {
  MutexLock lock(&mutex_);
  while (!done_) {
    done_changed_.Wait(&mutex_);
  }
}

void RunJobCall::OnDone() {
  const std::shared_ptr<RunJobCall> self = std::move(self_);  // until the lock is given back
  MutexLock lock(&mutex_);
  done_ = true;
  done_changed_.NotifyAll();
}

void RunJobCall::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  written_.NotifyAll();
  save_requested_.NotifyAll();
}

void RunJobCall::RequestSave(SaveRequest request) {
  MutexLock lock(&mutex_);
  if (save_request_.has_value() && save_request_->then_stop && !request.then_stop) {
    return;
  }
  save_request_ = request;
  save_requested_.NotifyAll();
}

void RunJobCall::SaveAndEnd() {
  MutexLock lock(&mutex_);
  ending_ = true;
  save_request_ = SaveRequest{.trigger = CheckpointTrigger::kDrain, .then_stop = true};
  save_requested_.NotifyAll();
}

std::optional<SaveRequest> RunJobCall::TakeSaveRequest() {
  MutexLock lock(&mutex_);
  return std::exchange(save_request_, std::nullopt);
}

std::optional<SaveRequest> RunJobCall::WaitForSaveRequest() {
  MutexLock lock(&mutex_);
  while (!save_request_.has_value() && !cancelled_ && !ending_) {
    save_requested_.Wait(&mutex_);
  }
  return cancelled_ ? std::nullopt : std::exchange(save_request_, std::nullopt);
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
    save_requested_.NotifyAll();
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
