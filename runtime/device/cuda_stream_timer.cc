#include "runtime/device/cuda_stream_timer.h"

#include <algorithm>
#include <utility>

namespace megatrain {
namespace {

constexpr int64_t kMaxWorkAhead = 32;

// The zero of a stream's time; null when the device has failed.
CudaEventHandle RecordZero(CudaShared& shared, cudaStream_t stream) {
  auto zero = shared.timing_events.Take();
  if (!zero.ok()) {
    shared.Update(zero.status());
    return nullptr;
  }
  shared.Check(cudaEventRecord(zero->get(), stream), "cudaEventRecord");
  shared.Check(cudaEventSynchronize(zero->get()), "cudaEventSynchronize");
  return *std::move(zero);
}

}  // namespace

CudaStreamTimer::CudaStreamTimer(CudaShared& shared, cudaStream_t stream)
    : shared_(shared),
      stream_(stream),
      last_end_(RecordZero(shared, stream)),
      taken_until_(shared.clock.MonotonicNow()),
      meter_(taken_until_) {}

void CudaStreamTimer::Begin(State state) {
  MutexLock lock(&mutex_);
  begun_ = state;
}

void CudaStreamTimer::EndLap(State state) {
  auto end = shared_.timing_events.Take();
  if (!end.ok()) {
    shared_.Update(end.status());
    return;
  }
  if (!shared_.Check(cudaEventRecord(end->get(), stream_), "cudaEventRecord")) {
    return;
  }
  MutexLock lock(&mutex_);
  open_laps_.push_back({*std::move(end), state});
  begun_ = WaitReason::kNoWork;
}

void CudaStreamTimer::LimitWorkAhead() {
  CudaEventHandle oldest_work;
  {
    MutexLock lock(&mutex_);
    TakeFinishedLaps();
    const auto is_work = [](const Lap& lap) { return !lap.state.has_value(); };
    if (std::count_if(open_laps_.begin(), open_laps_.end(), is_work) <= kMaxWorkAhead) {
      return;
    }
    oldest_work = std::find_if(open_laps_.begin(), open_laps_.end(), is_work)->end;
  }
  shared_.Check(cudaEventSynchronize(oldest_work.get()), "cudaEventSynchronize");
}

StreamFigures CudaStreamTimer::Figures() {
  MutexLock lock(&mutex_);
  TakeFinishedLaps();
  SetState(open_laps_.empty() ? begun_ : open_laps_.front().state);
  // The two clocks drift apart by some millionths.
  return meter_.Figures(std::max(taken_until_, shared_.clock.MonotonicNow()));
}

void CudaStreamTimer::TakeFinishedLaps() {
  while (!open_laps_.empty()) {
    Lap& lap = open_laps_.front();
    float milliseconds = 0;
    if (cudaEventQuery(lap.end.get()) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, last_end_.get(), lap.end.get()) != cudaSuccess) {
      cudaGetLastError();  // "not ready" is no error, and a true one returns with every call
      return;
    }
    SetState(lap.state);
    taken_until_ += absl::Milliseconds(milliseconds);
    if (lap.state.has_value()) {
      meter_.FinishWait(taken_until_);
    } else {
      meter_.FinishWork(taken_until_);
    }
    last_end_ = std::move(lap.end);
    open_laps_.pop_front();
  }
}

void CudaStreamTimer::SetState(State state) {
  if (state.has_value()) {
    meter_.StartWait(*state, taken_until_);
  } else {
    meter_.StartWork(taken_until_);
  }
}

}  // namespace megatrain
