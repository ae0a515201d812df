#include "runtime/device/virtual_device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/host_launcher.h"
#include "runtime/device/mapped_buffer.h"
#include "runtime/device/stream_meter.h"

namespace megatrain {
namespace {

constexpr uint8_t kPoison = 0xff;  // a NaN in fp32, bf16 and fp64

class VirtualEvent final : public Event {
 public:
  int64_t issued = 0;
  int64_t reached = 0;
};

// Full of NaN from the start on: what the work does not write shows.
class PoisonedBuffer final : public DeviceBuffer {
 public:
  explicit PoisonedBuffer(std::unique_ptr<DeviceBuffer> memory) : memory_(std::move(memory)) {
    std::memset(memory_->data(), kPoison, memory_->size_bytes());
  }

  std::byte* data() override { return memory_->data(); }
  int64_t size_bytes() const override { return memory_->size_bytes(); }

 private:
  const std::unique_ptr<DeviceBuffer> memory_;
};

}  // namespace

class VirtualStream final : public Stream {
 public:
  explicit VirtualStream(VirtualDevice& device) : device_(device), meter_(device.now_) {
    device_.streams_.push_back(this);
  }

  ~VirtualStream() override {
    device_.RunUntil([this] { return idle(); });
    std::erase(device_.streams_, this);
  }

  void Enqueue(Work work) override { queue_.push_back({.work = std::move(work)}); }

  void Wait(Event& event, WaitReason reason) override {
    auto& virtual_event = static_cast<VirtualEvent&>(event);
    queue_.push_back({.awaits = &virtual_event, .count = virtual_event.issued, .reason = reason});
  }

  void Record(Event& event) override {
    auto& virtual_event = static_cast<VirtualEvent&>(event);
    queue_.push_back({.records = &virtual_event, .count = ++virtual_event.issued});
  }

  StreamFigures Figures() const override { return meter_.Figures(device_.now_); }

  bool idle() const { return queue_.empty() && !works_; }
  bool works() const { return works_; }
  absl::Duration end() const { return running_.end; }  // of the work

  // Takes the next item when it can begin now. False when there is none such.
  bool TakeNext() {
    if (works_ || queue_.empty()) {
      return false;
    }
    Item& item = queue_.front();
    if (item.awaits != nullptr) {
      if (item.awaits->reached < item.count) {
        meter_.StartWait(item.reason, device_.now_);
        return false;
      }
      meter_.FinishWait(device_.now_);
    } else if (item.records != nullptr) {
      item.records->reached = std::max(item.records->reached, item.count);
    } else if (device_.status_.ok()) {
      Start(std::move(item.work));
    }
    queue_.pop_front();
    return true;
  }

  void Finish() {
    if (running_.work != nullptr) {
      Execute(running_.work);
    }
    works_ = false;
    meter_.FinishWork(device_.now_);
  }

 private:
  struct Item {
    Work work;
    VirtualEvent* awaits = nullptr;
    VirtualEvent* records = nullptr;
    int64_t count = 0;
    WaitReason reason = WaitReason::kNoWork;
  };

  struct Running {
    Work work;  // empty when it took effect at its start
    absl::Duration end;
  };

  void Start(Work work) {
    // Short and long work a hundred times apart, so that any stream may be the slow one.
    const int scale = device_.random_() % 2 == 0 ? 1 : 100;
    const auto length = absl::Microseconds(1 + device_.random_() % 10) * scale;
    meter_.StartWork(device_.now_);
    if (device_.random_() % 2 == 0) {
      Execute(work);
      work = nullptr;
    }
    running_ = {std::move(work), device_.now_ + length};
    works_ = true;
  }

  void Execute(const Work& work) {
    HostLauncher launcher;
    if (device_.status_.ok()) {
      device_.status_.Update(work(launcher));
    }
  }

  VirtualDevice& device_;
  StreamMeter meter_;
  std::deque<Item> queue_;
  bool works_ = false;
  Running running_;  // while it works
};

VirtualDevice::VirtualDevice(uint32_t seed) : random_(seed) {}
VirtualDevice::~VirtualDevice() = default;

absl::StatusOr<std::unique_ptr<DeviceBuffer>> VirtualDevice::Allocate(int64_t size_bytes) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> memory, MapBuffer(size_bytes));
  return std::make_unique<PoisonedBuffer>(std::move(memory));
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> VirtualDevice::AllocateHost(int64_t size_bytes) {
  return MapBuffer(size_bytes);
}

std::unique_ptr<Event> VirtualDevice::MakeEvent() { return std::make_unique<VirtualEvent>(); }
std::unique_ptr<Stream> VirtualDevice::MakeStream(StreamPlace /*place*/) {
  return std::make_unique<VirtualStream>(*this);
}

absl::Status VirtualDevice::Await(Event& event) {
  const auto& virtual_event = static_cast<const VirtualEvent&>(event);
  RunUntil(
      [&virtual_event, count = virtual_event.issued] { return virtual_event.reached >= count; });
  return status_;
}

absl::Status VirtualDevice::Drain() {
  RunUntil([this] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const VirtualStream* stream) { return stream->idle(); });
  });
  return status_;
}

template <typename Condition>
void VirtualDevice::RunUntil(Condition done) {
  while (!done()) {
    if (!Advance()) {
      status_.Update(absl::InternalError("the streams wait for each other"));
      return;
    }
  }
}

bool VirtualDevice::Advance() {
  std::vector<VirtualStream*> order = streams_;
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = false;
  for (VirtualStream* stream : order) {
    moved = stream->TakeNext() || moved;
  }
  if (moved) {
    return true;
  }
  VirtualStream* first = nullptr;
  for (VirtualStream* stream : order) {
    if (stream->works() && (first == nullptr || stream->end() < first->end())) {
      first = stream;
    }
  }
  if (first == nullptr) {
    return false;
  }
  now_ = first->end();
  first->Finish();
  return true;
}

}  // namespace megatrain
