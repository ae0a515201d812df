#ifndef RUNTIME_DEVICE_CUDA_STREAM_H_
#define RUNTIME_DEVICE_CUDA_STREAM_H_

#include <deque>
#include <memory>
#include <thread>

#include "runtime/base/condition_variable.h"
#include "runtime/device/cuda_shared.h"
#include "runtime/device/device.h"

namespace megatrain {

// How the items of one stream are carried out, by the stream's thread alone. Figures may be called
// by any thread.
class CudaLane {
 public:
  virtual ~CudaLane() = default;

  virtual void Run(const Work& work) = 0;
  virtual void Await(const RecordPoint& point, WaitReason reason) = 0;
  virtual void Record(RecordPoint& point) = 0;
  virtual StreamFigures Figures() = 0;

  // Whether the records of this lane are CUDA events.
  virtual bool records_cuda_events() const = 0;
};

// Work launches on a CUDA stream of its own, of the device's lowest priority where it yields, else
// of its highest. The destructor returns when that has run dry.
std::unique_ptr<CudaLane> MakeDeviceLane(CudaShared& shared, bool yields);

// Work runs on the stream's thread.
std::unique_ptr<CudaLane> MakeHostLane(CudaShared& shared);

// A queue and a thread that hands its items to the lane: so nothing blocks the caller, not even
// CUDA when its own queue is full.
class CudaStream final : public Stream {
 public:
  CudaStream(CudaShared& shared, std::unique_ptr<CudaLane> lane);
  ~CudaStream() override;

  void Enqueue(Work work) override;
  void Wait(Event& event, WaitReason reason) override;
  void Record(Event& event) override;
  StreamFigures Figures() const override { return lane_->Figures(); }

 private:
  // Exactly one of work, awaits and records is there.
  struct Item {
    Work work;
    std::shared_ptr<const RecordPoint> awaits;
    std::shared_ptr<RecordPoint> records;
    WaitReason reason = WaitReason::kNoWork;
  };

  void Push(Item item) ABSL_LOCKS_EXCLUDED(shared_.mutex);
  bool Pop(Item& item) ABSL_LOCKS_EXCLUDED(shared_.mutex);  // false: the stream stops
  void Process(const Item& item) ABSL_LOCKS_EXCLUDED(shared_.mutex);
  void Loop() ABSL_LOCKS_EXCLUDED(shared_.mutex);

  CudaShared& shared_;
  const std::unique_ptr<CudaLane> lane_;
  ConditionVariable queue_grew_;  // or the stream stops
  std::deque<Item> queue_ ABSL_GUARDED_BY(shared_.mutex);
  bool stopping_ ABSL_GUARDED_BY(shared_.mutex) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_STREAM_H_
