#include "runtime/ops/workspace.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace megatrain {
namespace {

using ::testing::HasSubstr;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

std::unique_ptr<char, Free> AlignedMemory(int64_t size_bytes) {
  return std::unique_ptr<char, Free>(static_cast<char*>(std::aligned_alloc(64, size_bytes)));
}

TEST(WorkspaceHeap, PiecesAreAlignedDisjointAndComeBack) {
  constexpr int64_t kSize = 1 << 16;
  const auto memory = AlignedMemory(kSize);
  WorkspaceHeap heap(memory.get(), kSize);
  constexpr int kSeed = 7;
  std::mt19937 random(kSeed);
  std::vector<std::pair<unsigned char*, int64_t>> pieces;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0) {
      const int64_t size = 1 + static_cast<int64_t>(random() % 2000);
      auto* piece = static_cast<unsigned char*>(heap.Take(size));
      if (piece == nullptr) {
        continue;
      }
      ASSERT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0U);
      std::memset(piece, static_cast<int>(size % 251), size);
      pieces.emplace_back(piece, size);
    } else if (!pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const auto [piece, size] = pieces.back();
      for (int64_t b = 0; b < size; ++b) {
        ASSERT_EQ(piece[b], size % 251) << "overwritten by another piece, seed " << kSeed;
      }
      heap.Return(piece);
      pieces.pop_back();
    }
  }
  for (const auto& [piece, size] : pieces) {
    heap.Return(piece);
  }
  EXPECT_EQ(heap.used_bytes(), 0);
  EXPECT_NE(heap.Take(kSize), nullptr) << "free neighbours were not joined";
}

TEST(WorkspaceHeap, RefusesWhatDoesNotFit) {
  const auto memory = AlignedMemory(256);
  WorkspaceHeap heap(memory.get(), 256);
  EXPECT_EQ(heap.Take(257), nullptr);
  EXPECT_NE(heap.Take(129), nullptr);
  EXPECT_EQ(heap.Take(128), nullptr);  // 129 took 192
  EXPECT_NE(heap.Take(64), nullptr);
}

TEST(RunInWorkspace, TensorsLieInTheWorkspaceAndOnlyWithinTheCall) {
  const auto memory = AlignedMemory(4096);
  const char* inside = nullptr;
  ASSERT_TRUE(RunInWorkspace(memory.get(), 4096, [&] {
                const at::Tensor a = at::empty({100}, at::kFloat);
                inside = static_cast<const char*>(a.data_ptr());
                EXPECT_FALSE(a.requires_grad());
                return absl::OkStatus();
              }).ok());
  EXPECT_GE(inside, memory.get());
  EXPECT_LT(inside, memory.get() + 4096);
  const at::Tensor outside = at::zeros({100}, at::kFloat);
  const auto* pointer = static_cast<const char*>(outside.data_ptr());
  EXPECT_TRUE(pointer < memory.get() || pointer >= memory.get() + 4096);
}

TEST(RunInWorkspace, TemporariesOfLibTorchLieInItToo) {
  const auto memory = AlignedMemory(1 << 20);
  const at::Tensor a = at::zeros({1000}, at::kFloat);
  const absl::Status status = RunInWorkspace(memory.get(), 2048, [&] {
    (void)a.add(a);  // 4,000 bytes
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("workspace exhausted: 4000 bytes wanted"));
}

TEST(RunInWorkspace, ErrorsOfLibTorchBecomeStatus) {
  const auto memory = AlignedMemory(4096);
  const absl::Status status = RunInWorkspace(memory.get(), 4096, [&] {
    const at::Tensor a = at::zeros({2, 3}, at::kFloat);
    (void)a.mm(a);
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("LibTorch: "));
}

TEST(RunInWorkspace, PassesTheBodysStatusOn) {
  const auto memory = AlignedMemory(64);
  EXPECT_EQ(RunInWorkspace(memory.get(), 64, [] { return absl::InvalidArgumentError("x"); }),
            absl::InvalidArgumentError("x"));
}

// The bits of a product of numbers that do not change.
std::vector<float> Product() {
  std::vector<float> numbers(43 * 32);
  std::minstd_rand generator(1);
  std::generate(numbers.begin(), numbers.end(),
                [&] { return static_cast<float>(generator() % 1000) * 1e-3f - 0.5f; });
  std::vector<float> product(11 * 32);
  const auto memory = AlignedMemory(4096);
  const absl::Status status = RunInWorkspace(memory.get(), 4096, [&] {
    const at::Tensor x = at::from_blob(numbers.data(), {11, 32});
    const at::Tensor weight = at::from_blob(numbers.data() + 11 * 32, {32, 32});
    at::Tensor y = at::from_blob(product.data(), {11, 32});
    at::mm_out(y, x, weight.t());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return product;
}

TEST(RunInWorkspace, AThreadsFirstProductHasTheBitsOfAllOthers) {
  at::set_num_threads(1);
  const std::vector<float> here = Product();
  std::vector<float> there;
  std::thread([&] { there = Product(); }).join();
  EXPECT_EQ(there, here);
}

TEST(RunInWorkspaceDeathTest, ATensorMayNotOutliveTheCall) {
  const auto memory = AlignedMemory(4096);
  EXPECT_DEATH(
      {
        at::Tensor kept;
        const absl::Status status = RunInWorkspace(memory.get(), 4096, [&] {
          kept = at::zeros({3}, at::kFloat);
          return absl::OkStatus();
        });
        std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        kept.reset();
      },
      "64 bytes was left behind");
}

}  // namespace
}  // namespace megatrain
