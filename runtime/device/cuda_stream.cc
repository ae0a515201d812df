#include "runtime/device/cuda_stream.h"

#include <array>
#include <utility>

#include "runtime/device/cuda_stream_timer.h"
#include "runtime/device/host_launcher.h"
#include "runtime/device/stream_meter.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {
namespace {

// The marks of a stream's launchers; null where none was set.
using Marks = std::array<CudaEventHandle, Launcher::kMarkCount>;

class CudaLauncher final : public Launcher {
 public:
  CudaLauncher(CudaShared& shared, cudaStream_t stream, Marks& marks)
      : shared_(shared), stream_(stream), marks_(marks) {}

  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    Update(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, stream_),
           "copy to the device");
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    Update(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, stream_),
           "copy to the host");
  }
  void Fill(void* device, uint8_t byte, int64_t size_bytes) override {
    Update(cudaMemsetAsync(device, byte, size_bytes, stream_), "fill device memory");
  }
  void SetMark(int mark) override {
    if (marks_[mark] == nullptr) {
      auto event = shared_.order_events.Take();
      status_.Update(event.status());
      if (!event.ok()) {
        return;
      }
      marks_[mark] = *std::move(event);
    }
    Update(cudaEventRecord(marks_[mark].get(), stream_), "mark a stream");
  }
  void AwaitMark(int mark) override {
    if (marks_[mark] != nullptr) {
      Update(cudaEventSynchronize(marks_[mark].get()), "wait for a mark");
    }
  }
  void* native_stream() override { return stream_; }

  const absl::Status& status() const { return status_; }

 private:
  void Update(cudaError_t error, const char* what) { status_.Update(CudaStatus(error, what)); }

  CudaShared& shared_;
  const cudaStream_t stream_;
  Marks& marks_;
  absl::Status status_;
};

// A stream of its own, for which the legacy default stream does not wait.
cudaStream_t MakeNativeStream(CudaShared& shared, bool yields) {
  cudaStream_t stream = nullptr;
  int lowest = 0;
  int highest = 0;
  if (shared.Check(cudaSetDevice(shared.ordinal), "cudaSetDevice") &&
      shared.Check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priority range")) {
    shared.Check(
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, yields ? lowest : highest),
        "cudaStreamCreate");
  }
  return stream;
}

class DeviceLane final : public CudaLane {
 public:
  DeviceLane(CudaShared& shared, bool yields)
      : shared_(shared), stream_(MakeNativeStream(shared, yields)), timer_(shared, stream_) {
    MutexLock lock(&shared_.mutex);
    shared_.device_streams.push_back(stream_);
  }

  ~DeviceLane() override {
    {
      MutexLock lock(&shared_.mutex);
      std::erase(shared_.device_streams, stream_);
    }
    shared_.Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    shared_.Check(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

  void Run(const Work& work) override {
    if (!shared_.FirstError().ok()) {
      return;
    }
    timer_.EndLap(WaitReason::kNoWork);
    timer_.Begin(std::nullopt);
    CudaLauncher launcher(shared_, stream_, marks_);
    absl::Status status = work(launcher);
    status.Update(launcher.status());
    shared_.Update(status);
    timer_.EndLap(std::nullopt);
    timer_.LimitWorkAhead();
  }

  void Await(const RecordPoint& point, WaitReason reason) override {
    timer_.EndLap(WaitReason::kNoWork);  // it waits since now, not since its last work
    timer_.Begin(reason);
    shared_.AwaitLaunched(point);
    if (point.event != nullptr) {
      shared_.Check(cudaStreamWaitEvent(stream_, point.event.get()), "cudaStreamWaitEvent");
    }
    timer_.EndLap(reason);
  }

  void Record(RecordPoint& point) override {
    if (point.event != nullptr) {
      shared_.Check(cudaEventRecord(point.event.get(), stream_), "cudaEventRecord");
    }
    shared_.SetLaunched(point);
  }

  StreamFigures Figures() override { return timer_.Figures(); }
  bool records_cuda_events() const override { return true; }

 private:
  CudaShared& shared_;
  const cudaStream_t stream_;
  Marks marks_;
  CudaStreamTimer timer_;
};

class HostLane final : public CudaLane {
 public:
  explicit HostLane(CudaShared& shared) : shared_(shared), meter_(shared.clock.MonotonicNow()) {}

  void Run(const Work& work) override {
    if (!shared_.FirstError().ok()) {
      return;
    }
    Switch(&StreamMeter::StartWork);
    HostLauncher launcher;
    shared_.Update(work(launcher));
    Switch(&StreamMeter::FinishWork);
  }

  void Await(const RecordPoint& point, WaitReason reason) override {
    {
      MutexLock lock(&mutex_);
      meter_.StartWait(reason, shared_.clock.MonotonicNow());
    }
    shared_.AwaitReached(point);
    Switch(&StreamMeter::FinishWait);
  }

  void Record(RecordPoint& point) override { shared_.SetLaunched(point); }

  StreamFigures Figures() override {
    MutexLock lock(&mutex_);
    return meter_.Figures(shared_.clock.MonotonicNow());
  }

  bool records_cuda_events() const override { return false; }

 private:
  void Switch(void (StreamMeter::*change)(absl::Duration)) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    (meter_.*change)(shared_.clock.MonotonicNow());
  }

  CudaShared& shared_;
  Mutex mutex_;
  StreamMeter meter_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<CudaLane> MakeDeviceLane(CudaShared& shared, bool yields) {
  return std::make_unique<DeviceLane>(shared, yields);
}

std::unique_ptr<CudaLane> MakeHostLane(CudaShared& shared) {
  return std::make_unique<HostLane>(shared);
}

CudaStream::CudaStream(CudaShared& shared, std::unique_ptr<CudaLane> lane)
    : shared_(shared), lane_(std::move(lane)), thread_([this] { Loop(); }) {}

CudaStream::~CudaStream() {
  {
    MutexLock lock(&shared_.mutex);
    stopping_ = true;
    queue_grew_.NotifyOne();
  }
  thread_.join();
}

void CudaStream::Enqueue(Work work) { Push({.work = std::move(work)}); }

void CudaStream::Wait(Event& event, WaitReason reason) {
  const auto& latest = static_cast<CudaEvent&>(event).latest;
  if (latest != nullptr) {
    Push({.awaits = latest, .reason = reason});
  }
}

void CudaStream::Record(Event& event) {
  auto point = std::make_shared<RecordPoint>();
  if (lane_->records_cuda_events()) {
    auto handle = shared_.order_events.Take();
    shared_.Update(handle.status());
    if (handle.ok()) {
      point->event = *std::move(handle);
    }
  }
  static_cast<CudaEvent&>(event).latest = point;
  Push({.records = std::move(point)});
}

void CudaStream::Push(Item item) {
  MutexLock lock(&shared_.mutex);
  queue_.push_back(std::move(item));
  ++shared_.open_item_count;
  queue_grew_.NotifyOne();
}

bool CudaStream::Pop(Item& item) {
  MutexLock lock(&shared_.mutex);
  while (queue_.empty() && !stopping_) {
    queue_grew_.Wait(&shared_.mutex);
  }
  if (queue_.empty()) {
    return false;
  }
  item = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void CudaStream::Process(const Item& item) {
  if (item.records != nullptr) {
    lane_->Record(*item.records);
  } else if (item.awaits != nullptr) {
    lane_->Await(*item.awaits, item.reason);
  } else {
    lane_->Run(item.work);
  }
}

void CudaStream::Loop() {
  shared_.Check(cudaSetDevice(shared_.ordinal), "cudaSetDevice");
  Item item;
  while (Pop(item)) {
    Process(item);
    item = {};  // what it held is free before Drain says that all is over
    MutexLock lock(&shared_.mutex);
    if (--shared_.open_item_count == 0) {
      shared_.progress.NotifyAll();
    }
  }
}

}  // namespace megatrain
