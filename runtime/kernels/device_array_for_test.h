// Device memory for tests: poisoned at first, guarded on both sides, freed at the end.

#ifndef RUNTIME_KERNELS_DEVICE_ARRAY_FOR_TEST_H_
#define RUNTIME_KERNELS_DEVICE_ARRAY_FOR_TEST_H_

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/model/layer_template.h"

namespace megatrain {

// Aborts with CUDA's message: nothing that a test does can go on after that.
inline void CheckCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::abort();
  }
}

// `count` elements. Filled with 0xff bytes, which are NaN in fp32 and bf16 and -1 as an integer.
// `shift_bytes`, a multiple of 16, moves the array within its allocation, to show that results do
// not depend on addresses. Bytes written outside the array fail the test.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count, int64_t shift_bytes = 0)
      : count_(count), start_(kGuardBytes + shift_bytes) {
    CheckCuda(cudaMalloc(&memory_, TotalBytes()), "cudaMalloc");
    CheckCuda(cudaMemset(memory_, kGuard, TotalBytes()), "cudaMemset");
    Poison();
  }
  explicit DeviceArray(const std::vector<T>& values, int64_t shift_bytes = 0)
      : DeviceArray(static_cast<int64_t>(values.size()), shift_bytes) {
    Upload(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    ExpectGuardsIntact();
    cudaFree(memory_);
  }

  T* data() { return reinterpret_cast<T*>(static_cast<char*>(memory_) + start_); }
  int64_t count() const { return count_; }

  void Poison() { CheckCuda(cudaMemset(data(), 0xff, SizeBytes()), "cudaMemset"); }
  void Clear() { CheckCuda(cudaMemset(data(), 0, SizeBytes()), "cudaMemset"); }
  void Upload(const std::vector<T>& values) {
    ASSERT_EQ(count_, static_cast<int64_t>(values.size()));
    CheckCuda(cudaMemcpy(data(), values.data(), SizeBytes(), cudaMemcpyHostToDevice), "upload");
  }
  // Waits for everything that was launched.
  std::vector<T> Download() {
    std::vector<T> values(count_);
    CheckCuda(cudaDeviceSynchronize(), "kernel");
    CheckCuda(cudaMemcpy(values.data(), data(), SizeBytes(), cudaMemcpyDeviceToHost), "download");
    return values;
  }

 private:
  static constexpr int64_t kGuardBytes = 1024;
  static constexpr unsigned char kGuard = 0xa5;

  int64_t SizeBytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  int64_t TotalBytes() const { return start_ + SizeBytes() + kGuardBytes; }

  void ExpectGuardsIntact() {
    std::vector<unsigned char> bytes(TotalBytes());
    CheckCuda(cudaMemcpy(bytes.data(), memory_, bytes.size(), cudaMemcpyDeviceToHost), "guards");
    const auto intact = [](unsigned char byte) { return byte == kGuard; };
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + start_, intact)) << "written before";
    EXPECT_TRUE(std::all_of(bytes.end() - kGuardBytes, bytes.end(), intact)) << "written behind";
  }

  void* memory_ = nullptr;
  int64_t count_;
  int64_t start_;  // bytes from the allocation's begin
};

// The value that `dtype` holds for `value`.
inline float RoundTo(ComputeDtype dtype, float value) {
  return dtype == ComputeDtype::kFloat32 ? value : __bfloat162float(__float2bfloat16_rn(value));
}

// Numbers in `dtype`, seen from the host as floats.
class DeviceNumbers {
 public:
  DeviceNumbers(ComputeDtype dtype, int64_t count, int64_t shift_bytes = 0)
      : dtype_(dtype), count_(count), bytes_(count * SizeBytes(dtype), shift_bytes) {}
  DeviceNumbers(ComputeDtype dtype, const std::vector<float>& values, int64_t shift_bytes = 0)
      : DeviceNumbers(dtype, static_cast<int64_t>(values.size()), shift_bytes) {
    Upload(values);
  }

  void* data() { return bytes_.data(); }
  void Poison() { bytes_.Poison(); }

  // Rounds to nearest even.
  void Upload(const std::vector<float>& values) {
    ASSERT_EQ(count_, static_cast<int64_t>(values.size()));
    std::vector<unsigned char> bytes(bytes_.count());
    for (int64_t i = 0; i < count_; ++i) {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(values[i]);
      const void* source = dtype_ == ComputeDtype::kFloat32 ? static_cast<const void*>(&values[i])
                                                            : static_cast<const void*>(&rounded);
      std::memcpy(&bytes[i * SizeBytes(dtype_)], source, SizeBytes(dtype_));
    }
    bytes_.Upload(bytes);
  }
  std::vector<float> Download() {
    const std::vector<unsigned char> bytes = bytes_.Download();
    std::vector<float> values(count_);
    for (int64_t i = 0; i < count_; ++i) {
      if (dtype_ == ComputeDtype::kFloat32) {
        std::memcpy(&values[i], &bytes[i * 4], 4);
      } else {
        __nv_bfloat16 value;
        std::memcpy(&value, &bytes[i * 2], 2);
        values[i] = __bfloat162float(value);
      }
    }
    return values;
  }
  std::vector<unsigned char> DownloadBytes() { return bytes_.Download(); }

 private:
  ComputeDtype dtype_;
  int64_t count_;
  DeviceArray<unsigned char> bytes_;
};

// Normal numbers of standard deviation `scale`, as `dtype` holds them.
inline std::vector<float> RandomNumbers(ComputeDtype dtype, int64_t count, uint64_t seed,
                                        float scale = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return RoundTo(dtype, normal(generator)); });
  return values;
}

// Every |actual - expected| <= relative |expected| + absolute; a NaN fails. Prints the worst.
inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                       double relative, double absolute) {
  ASSERT_EQ(actual.size(), expected.size());
  size_t worst = 0;
  double worst_ratio = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double bound = relative * std::abs(expected[i]) + absolute;
    const double ratio = std::abs(actual[i] - expected[i]) / bound;
    if (!(ratio <= worst_ratio)) {
      worst = i;
      worst_ratio = ratio;
      if (std::isnan(ratio)) {
        break;
      }
    }
  }
  EXPECT_LE(worst_ratio, 1) << "element " << worst << " of " << actual.size() << ": "
                            << actual[worst] << " instead of " << expected[worst];
}

// Half a unit in the last place of `dtype`, and a little for the fp32 arithmetic before it.
inline double RelativeTolerance(ComputeDtype dtype) {
  return dtype == ComputeDtype::kFloat32 ? 5e-6 : 0.00390625 * 1.01 + 5e-6;
}

inline const char* DtypeName(ComputeDtype dtype) {
  return dtype == ComputeDtype::kFloat32 ? "Float32" : "Bfloat16";
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_DEVICE_ARRAY_FOR_TEST_H_
