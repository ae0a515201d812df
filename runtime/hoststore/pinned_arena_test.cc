#include "runtime/hoststore/pinned_arena.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

constexpr int64_t kPage = 4096;

// Knows what is pinned; refuses what would make it more than `limit_bytes`.
class CountingPinner final : public PagePinner {
 public:
  explicit CountingPinner(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  absl::Status Pin(void* data, int64_t size_bytes) override {
    EXPECT_GT(size_bytes, 0);
    EXPECT_EQ(size_bytes % kPage, 0);
    if (pinned_bytes() + size_bytes > limit_bytes_) {
      return absl::ResourceExhaustedError("enough is pinned");
    }
    pinned_[data] = size_bytes;
    most_at_once_ = std::max(most_at_once_, size_bytes);
    return absl::OkStatus();
  }
  void Unpin(void* data) override { EXPECT_EQ(pinned_.erase(data), 1u); }

  int64_t pinned_bytes() const {
    int64_t total = 0;
    for (const auto& [data, size_bytes] : pinned_) {
      total += size_bytes;
    }
    return total;
  }
  int64_t most_at_once() const { return most_at_once_; }

 private:
  const int64_t limit_bytes_;
  int64_t most_at_once_ = 0;  // of all calls
  std::map<void*, int64_t> pinned_;
};

TEST(PinnedArenaTest, PartsAreApartWritableAndPinnedUntilTheEnd) {
  const std::vector<PinnedArena::Part> parts = {{0}, {3 * kPage}, {0}, {100}, {2 * kPage + 1}, {0}};
  CountingPinner pinner(1 << 30);
  {
    const auto arena = PinnedArena::Create(parts, /*threads=*/2, &pinner, /*progress=*/{});
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(PinnedArena::Bytes(parts), (3 + 1 + 3) * kPage);
    EXPECT_EQ(pinner.pinned_bytes(), PinnedArena::Bytes(parts));
    EXPECT_EQ((*arena)->pinned_bytes(), PinnedArena::Bytes(parts));
    EXPECT_TRUE((*arena)->refusal().ok());
    for (size_t part = 0; part < parts.size(); ++part) {
      std::memset((*arena)->data(static_cast<int>(part)), static_cast<int>(part) + 1,
                  parts[part].piece_bytes);
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      const std::byte* data = (*arena)->data(static_cast<int>(part));
      for (int64_t i = 0; i < parts[part].piece_bytes; ++i) {
        ASSERT_EQ(static_cast<size_t>(data[i]), part + 1);
      }
    }
  }
  EXPECT_EQ(pinner.pinned_bytes(), 0);
}

TEST(PinnedArenaTest, WhatIsRefusedStaysPageable) {
  CountingPinner pinner(3 * kPage);
  const std::vector<PinnedArena::Part> parts = {{2 * kPage}, {kPage}, {2 * kPage}, {kPage}};
  {
    const auto arena =
        PinnedArena::Create(parts, 1, &pinner, /*progress=*/{}, /*chunk_bytes=*/3 * kPage);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ((*arena)->refusal().message(), "enough is pinned");
    EXPECT_EQ((*arena)->pinned_bytes(), 3 * kPage);
    EXPECT_TRUE((*arena)->pins((*arena)->data(0)));
    EXPECT_TRUE((*arena)->pins((*arena)->data(1) + kPage - 1));
    EXPECT_FALSE((*arena)->pins((*arena)->data(2)));
    EXPECT_FALSE((*arena)->pins((*arena)->data(3)));
    std::memset((*arena)->data(3), 1, kPage);
  }
  EXPECT_EQ(pinner.pinned_bytes(), 0);
}

// A part larger than a call is pinned piece by piece, as far as the system allows.
TEST(PinnedArenaTest, PiecesOfAPartArePinnedByThemselves) {
  const std::vector<PinnedArena::Part> parts = {{100}, {kPage + 1, /*piece_count=*/5}, {kPage}};
  EXPECT_EQ(PinnedArena::Bytes(parts), (1 + 5 * 2 + 1) * kPage);
  CountingPinner pinner(/*limit_bytes=*/8 * kPage);
  const auto arena =
      PinnedArena::Create(parts, 1, &pinner, /*progress=*/{}, /*chunk_bytes=*/3 * kPage);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(pinner.most_at_once(), 3 * kPage);
  EXPECT_EQ((*arena)->pinned_bytes(), (1 + 2 + 2 + 2) * kPage);
  for (int piece = 0; piece < 5; ++piece) {
    EXPECT_EQ((*arena)->data(1, piece), (*arena)->data(1) + piece * 2 * kPage);
    EXPECT_EQ((*arena)->pins((*arena)->data(1, piece)), piece < 3);
  }
  EXPECT_EQ((*arena)->data(2), (*arena)->data(1, 4) + 2 * kPage);
  std::memset((*arena)->data(1, 4), 1, kPage + 1);
}

TEST(PinnedArenaTest, NeedsNoPinnerAndTellsHowFarItIs) {
  const std::vector<PinnedArena::Part> parts = {{kPage}, {2 * kPage}};
  int64_t done_bytes = 0;
  const auto arena = PinnedArena::Create(parts, 1, nullptr, [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, 3 * kPage);
    done_bytes = done;
    return absl::OkStatus();
  });
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(done_bytes, 3 * kPage);
  EXPECT_FALSE((*arena)->pins((*arena)->data(0)));
  EXPECT_TRUE((*arena)->refusal().ok());
}

TEST(PinnedArenaTest, WhoHearsOfProgressCanEndTheWork) {
  const std::vector<PinnedArena::Part> parts = {{kPage}};
  const auto stop = [](int64_t, int64_t) { return absl::CancelledError("stop"); };
  EXPECT_EQ(PinnedArena::Create(parts, 1, nullptr, stop).status(), absl::CancelledError("stop"));
}

}  // namespace
}  // namespace megatrain
