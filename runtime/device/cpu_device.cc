#include "runtime/device/cpu_device.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "runtime/device/host_launcher.h"
#include "runtime/device/mapped_buffer.h"
#include "runtime/device/stream_meter.h"

namespace megatrain {

// One lock for the whole device: operations take milliseconds, so nobody queues for it, and no
// order of locks can go wrong.
struct CpuDevice::Shared {
  explicit Shared(Clock& clock_in) : clock(clock_in) {}

  Clock& clock;
  Mutex mutex;
  ConditionVariable progress;                  // a record was reached, or the last item is over
  absl::Status status ABSL_GUARDED_BY(mutex);  // the first error
  int64_t open_item_count ABSL_GUARDED_BY(mutex) = 0;  // enqueued and not over, on all streams
};

namespace {

// Records in issue order are counted; a wait holds the count that it must see reached.
class CpuEvent final : public Event {
 public:
  int64_t issued = 0;   // under the device's mutex, as the next
  int64_t reached = 0;  // records are reached in issue order only on one stream: the highest
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(CpuDevice::Shared& shared)
      : shared_(shared), meter_(shared.clock.MonotonicNow()), thread_([this] { Loop(); }) {}

  ~CpuStream() override {
    {
      MutexLock lock(&shared_.mutex);
      stopping_ = true;
      queue_grew_.NotifyOne();
    }
    thread_.join();
  }

  void Enqueue(Work work) override {
    MutexLock lock(&shared_.mutex);
    Push({.work = std::move(work)});
  }

  void Wait(Event& event, WaitReason reason) override {
    auto& cpu_event = static_cast<CpuEvent&>(event);
    MutexLock lock(&shared_.mutex);
    Push({.awaits = &cpu_event, .count = cpu_event.issued, .reason = reason});
  }

  void Record(Event& event) override {
    auto& cpu_event = static_cast<CpuEvent&>(event);
    MutexLock lock(&shared_.mutex);
    Push({.records = &cpu_event, .count = ++cpu_event.issued});
  }

  StreamFigures Figures() const override {
    MutexLock lock(&shared_.mutex);
    return meter_.Figures(shared_.clock.MonotonicNow());
  }

 private:
  // Exactly one of work, awaits and records is there.
  struct Item {
    Work work;
    CpuEvent* awaits = nullptr;
    CpuEvent* records = nullptr;
    int64_t count = 0;  // of the record that is awaited or made
    WaitReason reason = WaitReason::kNoWork;
  };

  void Push(Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mutex) {
    queue_.push_back(std::move(item));
    ++shared_.open_item_count;
    queue_grew_.NotifyOne();
  }

  void Loop() {
    while (true) {
      MutexLock lock(&shared_.mutex);
      while (queue_.empty() && !stopping_) {
        queue_grew_.Wait(&shared_.mutex);
      }
      if (queue_.empty()) {
        return;
      }
      Item item = std::move(queue_.front());
      queue_.pop_front();
      Process(item);
      if (--shared_.open_item_count == 0 || item.records != nullptr) {
        shared_.progress.NotifyAll();
      }
    }
  }

  void Process(Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mutex) {
    if (item.records != nullptr) {
      item.records->reached = std::max(item.records->reached, item.count);
    } else if (item.awaits != nullptr) {
      meter_.StartWait(item.reason, shared_.clock.MonotonicNow());
      while (item.awaits->reached < item.count) {
        shared_.progress.Wait(&shared_.mutex);
      }
      meter_.FinishWait(shared_.clock.MonotonicNow());
    } else if (shared_.status.ok()) {
      meter_.StartWork(shared_.clock.MonotonicNow());
      shared_.mutex.Unlock();
      HostLauncher launcher;
      const absl::Status status = item.work(launcher);
      shared_.mutex.Lock();
      meter_.FinishWork(shared_.clock.MonotonicNow());
      shared_.status.Update(status);
    }
  }

  CpuDevice::Shared& shared_;
  ConditionVariable queue_grew_;  // or the stream stops
  std::deque<Item> queue_ ABSL_GUARDED_BY(shared_.mutex);
  bool stopping_ ABSL_GUARDED_BY(shared_.mutex) = false;
  StreamMeter meter_ ABSL_GUARDED_BY(shared_.mutex);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

CpuDevice::CpuDevice(Clock& clock) : shared_(std::make_unique<Shared>(clock)) {}
CpuDevice::~CpuDevice() = default;

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CpuDevice::Allocate(int64_t size_bytes) {
  return MapBuffer(size_bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CpuDevice::AllocateHost(int64_t size_bytes) {
  return MapBuffer(size_bytes);
}

std::unique_ptr<Event> CpuDevice::MakeEvent() { return std::make_unique<CpuEvent>(); }
std::unique_ptr<Stream> CpuDevice::MakeStream(StreamPlace /*place*/) {
  return std::make_unique<CpuStream>(*shared_);
}

absl::Status CpuDevice::Await(Event& event) {
  const auto& cpu_event = static_cast<const CpuEvent&>(event);
  MutexLock lock(&shared_->mutex);
  const int64_t count = cpu_event.issued;
  while (cpu_event.reached < count) {
    shared_->progress.Wait(&shared_->mutex);
  }
  return shared_->status;
}

absl::Status CpuDevice::Drain() {
  MutexLock lock(&shared_->mutex);
  while (shared_->open_item_count > 0) {
    shared_->progress.Wait(&shared_->mutex);
  }
  return shared_->status;
}

}  // namespace megatrain
