#include "runtime/device/cuda_device.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/cuda_shared.h"
#include "runtime/device/cuda_stream.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {
namespace {

class DeviceMemory final : public DeviceBuffer {
 public:
  DeviceMemory(CudaShared& shared, void* data, int64_t size_bytes)
      : shared_(shared), data_(data), size_bytes_(size_bytes) {
    MutexLock lock(&shared_.mutex);
    ++shared_.allocation_count;
    shared_.reserved_bytes += size_bytes_;
  }

  ~DeviceMemory() override {
    shared_.Check(cudaFree(data_), "cudaFree");
    MutexLock lock(&shared_.mutex);
    shared_.reserved_bytes -= size_bytes_;
  }

  std::byte* data() override { return static_cast<std::byte*>(data_); }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  CudaShared& shared_;
  void* const data_;
  const int64_t size_bytes_;
};

class PinnedMemory final : public DeviceBuffer {
 public:
  PinnedMemory(CudaShared& shared, void* data, int64_t size_bytes)
      : shared_(shared), data_(data), size_bytes_(size_bytes) {}
  ~PinnedMemory() override { shared_.Check(cudaFreeHost(data_), "cudaFreeHost"); }

  std::byte* data() override { return static_cast<std::byte*>(data_); }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  CudaShared& shared_;
  void* const data_;
  const int64_t size_bytes_;
};

// Of an allocation, which leaves no trace when it is refused.
absl::Status Refused(cudaError_t error, const char* call, int64_t size_bytes) {
  cudaGetLastError();
  const absl::Status status = CudaStatus(error, call);
  return absl::Status(status.code(), absl::StrCat("allocating ", size_bytes,
                                                  " bytes: ", std::string(status.message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(Clock& clock, int ordinal) {
  // Threads that wait for the GPU sleep: the processors belong to the optimizer. Refused, without
  // harm, when the program has used the GPU before.
  if (cudaSetDevice(ordinal) != cudaSuccess ||
      cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess) {
    cudaGetLastError();
  }
  MT_ASSIGN_OR_RETURN(CudaDeviceInfo info, ReadCudaDeviceInfo(ordinal));
  return std::unique_ptr<CudaDevice>(new CudaDevice(clock, std::move(info)));
}

CudaDevice::CudaDevice(Clock& clock, CudaDeviceInfo info)
    : info_(std::move(info)), shared_(std::make_unique<CudaShared>(clock, info_.ordinal)) {}

CudaDevice::~CudaDevice() = default;

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::Allocate(int64_t size_bytes) {
  if (size_bytes > info_.total_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "allocating ", size_bytes, " bytes: ", info_.name, " has ", info_.total_bytes, " in all"));
  }
  void* data = nullptr;
  cudaError_t error = cudaSetDevice(shared_->ordinal);
  if (error == cudaSuccess) {
    error = cudaMalloc(&data, size_bytes);
  }
  if (error != cudaSuccess) {
    return Refused(error, "cudaMalloc", size_bytes);
  }
  return std::make_unique<DeviceMemory>(*shared_, data, size_bytes);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaDevice::AllocateHost(int64_t size_bytes) {
  void* data = nullptr;
  cudaError_t error = cudaSetDevice(shared_->ordinal);
  if (error == cudaSuccess) {
    error = cudaHostAlloc(&data, size_bytes, cudaHostAllocDefault);
  }
  if (error != cudaSuccess) {
    return Refused(error, "cudaHostAlloc", size_bytes);
  }
  return std::make_unique<PinnedMemory>(*shared_, data, size_bytes);
}

std::unique_ptr<Event> CudaDevice::MakeEvent() { return std::make_unique<CudaEvent>(); }

std::unique_ptr<Stream> CudaDevice::MakeStream(StreamPlace place) {
  auto lane = place == StreamPlace::kHost
                  ? MakeHostLane(*shared_)
                  : MakeDeviceLane(*shared_, place == StreamPlace::kDeviceYielding);
  return std::make_unique<CudaStream>(*shared_, std::move(lane));
}

absl::Status CudaDevice::Await(Event& event) {
  if (const auto latest = static_cast<CudaEvent&>(event).latest; latest != nullptr) {
    shared_->AwaitReached(*latest);
  }
  return shared_->FirstError();
}

absl::Status CudaDevice::Drain() {
  shared_->AwaitAllLaunched();
  shared_->SynchronizeStreams();
  return shared_->FirstError();
}

CudaDevice::MemoryFigures CudaDevice::memory_figures() const {
  MutexLock lock(&shared_->mutex);
  return {.allocation_count = shared_->allocation_count, .reserved_bytes = shared_->reserved_bytes};
}

}  // namespace megatrain
