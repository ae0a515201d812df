#include "runtime/device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/device/device_conformance.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<CudaDevice> MakeCudaDevice() {
  static SystemClock clock;
  auto device = CudaDevice::Create(clock);
  MT_CHECK(device.ok());
  return *std::move(device);
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceConformanceTest,
                         testing::Values(DeviceBackend{"Cuda", MakeCudaDevice}), DeviceBackendName);

TEST(CudaDeviceTest, TellsWhatItIs) {
  const auto device = MakeCudaDevice();
  const CudaDeviceInfo& info = device->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.compute_capability_major, 9);
  EXPECT_GT(info.free_bytes, int64_t{1} << 30);
  EXPECT_GE(info.total_bytes, info.free_bytes);
  EXPECT_GE(info.driver_version / 1000, info.runtime_version / 1000);
}

TEST(CudaDeviceTest, AGpuThatIsNotThereIsUnavailable) {
  SystemClock clock;
  EXPECT_EQ(CudaDevice::Create(clock, 63).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaDeviceTest, CountsWhatItReserves) {
  const auto device = MakeCudaDevice();
  {
    const auto first = device->Allocate(1 << 20);
    const auto second = device->Allocate(1 << 20);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(device->memory_figures().allocation_count, 2);
    EXPECT_EQ(device->memory_figures().reserved_bytes, 2 << 20);
  }
  EXPECT_EQ(device->memory_figures().allocation_count, 2);
  EXPECT_EQ(device->memory_figures().reserved_bytes, 0);
}

TEST(CudaDeviceTest, ARefusedAllocationLeavesNoError) {
  const auto device = MakeCudaDevice();
  const auto refused = device->Allocate(device->info().total_bytes);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_TRUE(device->Drain().ok());
}

TEST(CudaDeviceTest, ACopyThatFailsFailsTheDevice) {
  const auto device = MakeCudaDevice();
  const auto stream = device->MakeStream(StreamPlace::kDevice);
  const auto event = device->MakeEvent();
  bool ran = false;
  stream->Enqueue([](Launcher& launcher) {
    int here = 0;
    launcher.CopyToDevice(nullptr, &here, sizeof(here));
    return absl::OkStatus();
  });
  stream->Enqueue([&ran](Launcher&) {
    ran = true;
    return absl::OkStatus();
  });
  stream->Record(*event);
  EXPECT_THAT(std::string(device->Await(*event).message()), HasSubstr("copy to the device"));
  EXPECT_FALSE(ran);
}

TEST(CudaDeviceTest, BusyIsTheTimeOfTheGpu) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int kRounds = 100;  // more than the stream's thread launches ahead
  const auto device = MakeCudaDevice();
  auto buffer = device->Allocate(kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const auto stream = device->MakeStream(StreamPlace::kDevice);
  for (int round = 0; round < kRounds; ++round) {
    stream->Enqueue([&](Launcher& launcher) {
      launcher.Fill((*buffer)->data(), 1, kBytes);
      return absl::OkStatus();
    });
  }
  ASSERT_TRUE(device->Drain().ok());
  const StreamFigures figures = stream->Figures();
  EXPECT_EQ(figures.operation_count, kRounds);
  // No memory of today takes 10 TB/s.
  EXPECT_GT(figures.busy, kRounds * absl::Microseconds(100));
  EXPECT_LE(figures.busy, figures.wall);
}

TEST(CudaDeviceTest, FiguresCanBeTakenWhileWorkGoesOn) {
  const auto device = MakeCudaDevice();
  auto buffer = device->Allocate(1 << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const auto stream = device->MakeStream(StreamPlace::kDevice);
  const auto event = device->MakeEvent();
  for (int i = 0; i < 2000; ++i) {
    stream->Wait(*event, WaitReason::kSlotFree);
    stream->Enqueue([&](Launcher& launcher) {
      launcher.Fill((*buffer)->data(), 1, 1 << 20);
      return absl::OkStatus();
    });
    stream->Record(*event);
    const StreamFigures figures = stream->Figures();
    absl::Duration sum = figures.busy;
    for (const absl::Duration wait : figures.waits) {
      sum += wait;
    }
    ASSERT_EQ(sum, figures.wall);
  }
  ASSERT_TRUE(device->Drain().ok());
  EXPECT_EQ(stream->Figures().operation_count, 2000);
}

TEST(CudaDeviceTest, AYieldingStreamHasTheLowerPriority) {
  const auto device = MakeCudaDevice();
  const auto priority_of = [&](StreamPlace place) {
    const auto stream = device->MakeStream(place);
    int priority = 0;
    stream->Enqueue([&priority](Launcher& launcher) {
      return CudaStatus(
          cudaStreamGetPriority(static_cast<cudaStream_t>(launcher.native_stream()), &priority),
          "cudaStreamGetPriority");
    });
    EXPECT_TRUE(device->Drain().ok());
    return priority;
  };
  // CUDA counts downwards.
  EXPECT_GT(priority_of(StreamPlace::kDeviceYielding), priority_of(StreamPlace::kDevice));
}

}  // namespace
}  // namespace megatrain
