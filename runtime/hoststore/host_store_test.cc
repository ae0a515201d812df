#include "runtime/hoststore/host_store.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/hoststore/page_pinner.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ModelLayout LayoutOf(const std::vector<int64_t>& element_counts) {
  ModelLayout layout = {.units = {}, .tied = false};
  for (int64_t count : element_counts) {
    layout.units.push_back(
        {.kind = UnitKind::kDecoderLayer, .layer_index = 0, .tensors = {}, .element_count = count});
  }
  return layout;
}

std::unique_ptr<HostStore> Make(const ModelLayout& layout, HostStore::Options options = {}) {
  auto store = HostStore::Create(layout, options);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

// Asks the kernel, which answers EFAULT where a load would be a fault.
bool Readable(const void* address) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const bool readable = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

TEST(HostStoreTest, BytesByKind) {
  const ModelLayout layout = LayoutOf({64, 4096});
  EXPECT_THAT(HostStore::Bytes(layout, {.gradient_bytes = 2}),
              ElementsAre(Pair("weights_hi", 4096 + 8192), Pair("weights_lo", 4096 + 8192),
                          Pair("adam_m", 4096 + 16384), Pair("adam_v", 4096 + 16384),
                          Pair("gradients", 4096 + 8192)));
  EXPECT_EQ(HostStore::Bytes(layout, {}).back().second, 4096 + 16384);
}

TEST(HostStoreTest, UnitsAreZeroAlignedAndApart) {
  const std::vector<int64_t> counts = {64, 5120, 64, 100'032};
  auto store = Make(LayoutOf(counts));
  for (int unit = 0; unit < store->unit_count(); ++unit) {
    const auto access = store->BeginAccess(unit);
    for (const void* data :
         {static_cast<const void*>(store->hi(unit)), static_cast<const void*>(store->lo(unit)),
          static_cast<const void*>(store->moment1(unit)),
          static_cast<const void*>(store->moment2(unit)),
          static_cast<const void*>(store->gradient(unit))}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % sysconf(_SC_PAGESIZE), 0u);
    }
    for (int64_t i = 0; i < counts[unit]; ++i) {
      ASSERT_EQ(store->hi(unit)[i], 0);
      ASSERT_EQ(store->moment2(unit)[i], 0.0f);
      store->hi(unit)[i] = static_cast<uint16_t>(unit + 1);
      store->lo(unit)[i] = static_cast<int16_t>(-unit);
      store->moment1(unit)[i] = static_cast<float>(unit);
      store->moment2(unit)[i] = static_cast<float>(2 * unit);
      static_cast<float*>(store->gradient(unit))[i] = static_cast<float>(3 * unit);
    }
  }
  for (int unit = 0; unit < store->unit_count(); ++unit) {
    for (int64_t i = 0; i < counts[unit]; ++i) {
      ASSERT_EQ(store->hi(unit)[i], unit + 1);
      ASSERT_EQ(store->lo(unit)[i], -unit);
      ASSERT_EQ(store->moment1(unit)[i], static_cast<float>(unit));
      ASSERT_EQ(store->moment2(unit)[i], static_cast<float>(2 * unit));
      ASSERT_EQ(static_cast<float*>(store->gradient(unit))[i], static_cast<float>(3 * unit));
    }
  }
}

TEST(HostStoreTest, IdleUnitsAreOutOfReachWhenProtected) {
  auto store = Make(LayoutOf({5120, 5120}), {.protect_idle_units = true});
  EXPECT_FALSE(Readable(store->hi(0)));
  {
    std::optional<HostStore::Access> first(store->BeginAccess(0));
    HostStore::Access second = store->BeginAccess(0);
    store->hi(0)[0] = 7;
    first.reset();
    EXPECT_TRUE(Readable(store->hi(0)));
    EXPECT_TRUE(Readable(store->moment2(0) + 5119));
    EXPECT_TRUE(Readable(store->gradient(0)));
    EXPECT_FALSE(Readable(store->hi(1)));
    HostStore::Access moved = std::move(second);
    EXPECT_TRUE(Readable(store->lo(0)));
  }
  EXPECT_FALSE(Readable(store->hi(0)));
  EXPECT_FALSE(Readable(store->lo(0) + 5119));
  EXPECT_FALSE(Readable(store->moment1(0)));
  EXPECT_FALSE(Readable(store->moment2(0)));
  EXPECT_FALSE(Readable(store->gradient(0)));
  const auto again = store->BeginAccess(0);
  EXPECT_EQ(store->hi(0)[0], 7);
}

TEST(HostStoreTest, AccessesOfManyThreadsKeepPagesOpen) {
  auto store = Make(LayoutOf({64, 64}), {.protect_idle_units = true});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, thread] {
      for (int round = 0; round < 2000; ++round) {
        const int unit = (thread + round) % 2;
        const auto access = store->BeginAccess(unit);
        store->moment1(unit)[thread] += 1.0f;  // an own element for each thread
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const auto first = store->BeginAccess(0);
  const auto second = store->BeginAccess(1);
  for (int thread = 0; thread < 4; ++thread) {
    EXPECT_EQ(store->moment1(0)[thread] + store->moment1(1)[thread], 2000.0f);
  }
}

TEST(HostStoreTest, IsNeitherForkedNorDumped) {
  auto store = Make(LayoutOf({1 << 20}));
  const uintptr_t address = reinterpret_cast<uintptr_t>(store->moment1(0));
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  std::string flags;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = begin <= address && address < end;
    } else if (here && line.starts_with("VmFlags:")) {
      flags = line + " ";
    }
  }
  EXPECT_THAT(flags, HasSubstr(" dc "));
  EXPECT_THAT(flags, HasSubstr(" dd "));
}

// An embedding, that many layers and a head.
ModelLayout LayersOf(int layer_count, int64_t element_count) {
  ModelLayout layout = LayoutOf(std::vector<int64_t>(layer_count + 2, element_count));
  layout.units.front().kind = UnitKind::kEmbedding;
  layout.units.back().kind = UnitKind::kHead;
  return layout;
}

TEST(HostStoreTest, FoldedLayersShowTheFirstOnesInTurn) {
  const ModelLayout layout = LayersOf(5, 5000);
  for (const bool protects : {false, true}) {
    auto store = Make(layout, {.protect_idle_units = protects, .fold_layers = 2});
    for (int unit = 0; unit < 7; ++unit) {
      const auto access = store->BeginAccess(unit);
      store->hi(unit)[4999] = static_cast<uint16_t>(unit);
      store->moment2(unit)[4999] = static_cast<float>(unit);
    }
    const int last_writer[] = {0, 5, 4, 5, 4, 5, 6};
    for (int unit = 0; unit < 7; ++unit) {
      const auto access = store->BeginAccess(unit);
      EXPECT_EQ(store->hi(unit)[4999], last_writer[unit]) << unit;
      EXPECT_EQ(store->moment2(unit)[4999], static_cast<float>(last_writer[unit]));
      EXPECT_EQ(store->hi(unit)[0], 0);
    }
  }
}

TEST(HostStoreTest, AFoldedStoreTakesTheMemoryOfItsFirstLayers) {
  const ModelLayout layout = LayersOf(80, 4096);
  EXPECT_EQ(HostStore::Bytes(layout, {.fold_layers = 3}).front().second, 5 * 2 * 4096);
  EXPECT_EQ(HostStore::Bytes(layout, {.fold_layers = 80}), HostStore::Bytes(layout, {}));
  auto store = Make(layout, {.fold_layers = 3});
  const auto report = store->Populate(1, /*progress=*/{});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->size_bytes, 5 * 16 * 4096);
}

TEST(HostStoreTest, UnitsWhoseGradientWaitsElsewhereTakeNoMemoryForIt) {
  const ModelLayout layout = LayersOf(3, 4096);
  const HostStore::Options options = {.gradient_bytes = 2,
                                      .gradients = {true, false, true, false, false}};
  EXPECT_EQ(HostStore::GradientBytes(layout, options), 2 * 2 * 4096);
  EXPECT_EQ(HostStore::Bytes(layout, options).back(),
            std::make_pair(std::string("gradients"), int64_t{2} * 2 * 4096));
  auto store = Make(layout, options);
  const auto report = store->Populate(1, /*progress=*/{});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->size_bytes, (5 * 12 + 2 * 2) * 4096);
  for (int unit = 0; unit < 5; ++unit) {
    const auto access = store->BeginAccess(unit);
    EXPECT_EQ(store->has_gradient(unit), options.gradients[unit]) << unit;
    store->moment2(unit)[4095] = 1;
  }
  static_cast<uint16_t*>(store->gradient(2))[4095] = 1;
  EXPECT_DEATH(store->gradient(1), "");
}

TEST(HostStoreTest, AFoldedLayerHasMemoryForAGradientThatAnyOfItsLayersNeeds) {
  const ModelLayout layout = LayersOf(4, 4096);
  const HostStore::Options options = {.gradient_bytes = 2,
                                      .gradients = {false, false, false, false, true, false},
                                      .fold_layers = 2};
  EXPECT_EQ(HostStore::GradientBytes(layout, options), 2 * 4096);
  EXPECT_TRUE(Make(layout, options)->has_gradient(2));
}

TEST(HostStoreTest, NoGradientAtAllNeedsNoMemory) {
  auto store =
      Make(LayersOf(1, 64), {.gradients = {false, false, false}, .protect_idle_units = true});
  EXPECT_TRUE(store->Populate(1, /*progress=*/{}).ok());
  const auto access = store->BeginAccess(1);
  EXPECT_FALSE(store->has_gradient(1));
}

TEST(HostStoreTest, LayersThatDifferCannotBeFolded) {
  const auto store = HostStore::Create(LayoutOf({64, 64, 128}), {.fold_layers = 2});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("unit 2"));
}

// Memory that this process has now.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(HostStoreTest, PopulatingTouchesEveryPageAndTellsItsProgress) {
  constexpr int64_t kElements = 10 << 20;
  auto store = Make(LayoutOf({kElements, 64}), {.protect_idle_units = true});
  const int64_t before = ResidentBytes();
  int64_t last_done = 0;
  int64_t last_all = 0;
  int calls = 0;
  const auto report = store->Populate(3, [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last_done);
    last_done = done;
    last_all = all;
    ++calls;
    return absl::OkStatus();
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GE(ResidentBytes() - before, 16 * kElements);
  EXPECT_GE(report->size_bytes, 16 * kElements);
  EXPECT_LE(report->huge_page_bytes, report->size_bytes);
  EXPECT_EQ(last_done, last_all);
  EXPECT_EQ(last_all, report->size_bytes);
  EXPECT_GT(calls, 5);
  EXPECT_FALSE(Readable(store->hi(0)));
  EXPECT_TRUE(store->untouched());
  const auto access = store->BeginAccess(0);
  EXPECT_EQ(store->moment1(0)[kElements - 1], 0.0f);
  EXPECT_FALSE(store->untouched());
}

// Notes what it is asked for; refuses beyond a limit.
class NotingPinner final : public PagePinner {
 public:
  explicit NotingPinner(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  absl::Status Pin(void* data, int64_t size_bytes) override {
    if (pinned_bytes + size_bytes > limit_bytes_) {
      return absl::ResourceExhaustedError("limit");
    }
    pinned_bytes += size_bytes;
    sizes.push_back(size_bytes);
    open.push_back(data);
    return absl::OkStatus();
  }
  void Unpin(void* data) override { std::erase(open, data); }

  int64_t pinned_bytes = 0;
  std::vector<int64_t> sizes;
  std::vector<void*> open;

 private:
  const int64_t limit_bytes_;
};

constexpr HostStore::Plane kTransferred[] = {HostStore::Plane::kHi, HostStore::Plane::kGradient};

TEST(HostStoreTest, PinsPlanesInChunksOfWholeUnits) {
  NotingPinner pinner(int64_t{1} << 40);
  {
    auto store = Make(LayersOf(3, 4096), {.gradient_bytes = 4});
    std::vector<int64_t> progress;
    const auto tell = [&](int64_t done_bytes, int64_t all_bytes) {
      EXPECT_EQ(all_bytes, 5 * (8192 + 16384));
      progress.push_back(done_bytes);
      return absl::OkStatus();
    };
    const auto report = store->Pin(pinner, kTransferred, tell, 5 * 8192);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->refusal.ok());
    EXPECT_EQ(report->requested_bytes, 5 * (8192 + 16384));
    EXPECT_EQ(report->pinned_bytes, report->requested_bytes);
    EXPECT_THAT(progress, ElementsAre(5 * 8192, 5 * 8192 + 2 * 16384, 5 * 8192 + 4 * 16384,
                                      report->requested_bytes));
    EXPECT_THAT(pinner.sizes, ElementsAre(5 * 8192, 2 * 16384, 2 * 16384, 16384));
    EXPECT_THAT(pinner.open, ElementsAre(store->hi(0), store->gradient(0), store->gradient(2),
                                         store->gradient(4)));
  }
  EXPECT_TRUE(pinner.open.empty());
}

TEST(HostStoreTest, FoldedMemoryIsPinnedOnce) {
  NotingPinner pinner(int64_t{1} << 40);
  auto store = Make(LayersOf(5, 4096), {.fold_layers = 2});
  constexpr HostStore::Plane kOne[] = {HostStore::Plane::kHi};
  const auto report = store->Pin(pinner, kOne, /*progress=*/{}, 2 * 8192);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->requested_bytes, 4 * 8192);
  EXPECT_EQ(report->pinned_bytes, 4 * 8192);
  EXPECT_THAT(pinner.open, ElementsAre(store->hi(0), store->hi(2)));
  for (int unit = 0; unit < 7; ++unit) {
    EXPECT_TRUE(store->pins(store->hi(unit) + 4095)) << unit;
    EXPECT_FALSE(store->pins(store->lo(unit))) << unit;
  }
}

TEST(HostStoreTest, ARefusedPinKeepsWhatWasPinned) {
  NotingPinner pinner(3 * 8192);
  {
    auto store = Make(LayersOf(3, 4096));
    const auto report = store->Pin(pinner, kTransferred, /*progress=*/{}, 2 * 8192);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->refusal.message(), "limit");
    EXPECT_EQ(store->pin_refusal(), report->refusal);
    EXPECT_TRUE(store->pins(store->hi(1)));
    EXPECT_FALSE(store->pins(store->hi(2)));
    EXPECT_EQ(report->pinned_bytes, 2 * 8192);
    EXPECT_EQ(report->requested_bytes, 5 * (8192 + 16384));
    EXPECT_EQ(pinner.open.size(), 1u);
  }
  EXPECT_TRUE(pinner.open.empty());
}

TEST(HostStoreTest, WhoHearsOfProgressCanEndTheWork) {
  NotingPinner pinner(int64_t{1} << 40);
  auto store = Make(LayersOf(3, 4096));
  const auto stop = [](int64_t, int64_t) { return absl::CancelledError("stop"); };
  EXPECT_EQ(store->Populate(2, stop).status(), absl::CancelledError("stop"));
  EXPECT_EQ(store->Pin(pinner, kTransferred, stop, 8192).status(), absl::CancelledError("stop"));
  EXPECT_EQ(pinner.open.size(), 1u);
}

TEST(HostStoreTest, NoRoomIsAnError) {
  const auto store = HostStore::Create(LayoutOf({int64_t{1} << 45}), {});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("weights_hi"));
}

}  // namespace
}  // namespace megatrain
