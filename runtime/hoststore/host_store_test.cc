#include "runtime/hoststore/host_store.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

TEST(HostStoreTest, NoRoomIsAnError) {
  const auto store = HostStore::Create(LayoutOf({int64_t{1} << 45}), {});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("weights_hi"));
}

}  // namespace
}  // namespace megatrain
