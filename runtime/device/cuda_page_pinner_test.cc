#include "runtime/device/cuda_page_pinner.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kElements = 4 << 20;

ModelLayout Layers(int count) {
  ModelLayout layout = {.units = {}, .tied = false};
  for (int unit = 0; unit < count; ++unit) {
    layout.units.push_back({.kind = UnitKind::kDecoderLayer,
                            .layer_index = unit,
                            .tensors = {},
                            .element_count = kElements});
  }
  return layout;
}

bool IsPinned(const void* data) {
  cudaPointerAttributes attributes;
  return cudaPointerGetAttributes(&attributes, data) == cudaSuccess &&
         attributes.type == cudaMemoryTypeHost;
}

// Whether what is written on the host arrives where a copy to the device and back takes it.
void ExpectCopies(uint16_t* host) {
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, kElements * 2), cudaSuccess);
  std::memset(host, 0x5a, kElements * 2);
  ASSERT_EQ(cudaMemcpy(device, host, kElements * 2, cudaMemcpyDefault), cudaSuccess);
  std::memset(host, 0, kElements * 2);
  ASSERT_EQ(cudaMemcpy(host, device, kElements * 2, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(host[0], 0x5a5a);
  EXPECT_EQ(host[kElements - 1], 0x5a5a);
  cudaFree(device);
}

TEST(CudaPagePinnerTest, PinsPlanesOfAHostStoreWhileItLives) {
  constexpr HostStore::Plane kPlanes[] = {HostStore::Plane::kHi, HostStore::Plane::kGradient};
  for (const int fold_layers : {0, 2}) {
    CudaPagePinner pinner;
    auto store = HostStore::Create(Layers(5), {.gradient_bytes = 2, .fold_layers = fold_layers});
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Populate(2, /*progress=*/{}).ok());
    const auto report = (*store)->Pin(pinner, kPlanes, /*progress=*/{}, 2 * kElements * 2);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->refusal.ok()) << report->refusal;
    EXPECT_EQ(report->pinned_bytes, report->requested_bytes);
    for (int unit = 0; unit < 5; ++unit) {
      EXPECT_TRUE(IsPinned((*store)->hi(unit)));
      EXPECT_TRUE(IsPinned((*store)->hi(unit) + kElements - 1));
      EXPECT_TRUE(IsPinned((*store)->gradient(unit)));
      EXPECT_FALSE(IsPinned((*store)->moment1(unit)));
      ExpectCopies((*store)->hi(unit));
    }
    const void* first = (*store)->hi(0);
    store->reset();
    EXPECT_FALSE(IsPinned(first));
  }
}

TEST(CudaPagePinnerTest, ARefusalIsExplainedAndForgotten) {
  CudaPagePinner pinner;
  void* nothing = mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  const absl::Status refusal = pinner.Pin(nothing, 1 << 20);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("RLIMIT_MEMLOCK"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  munmap(nothing, 1 << 20);
}

}  // namespace
}  // namespace megatrain
