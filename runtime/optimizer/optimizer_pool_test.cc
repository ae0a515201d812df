#include "runtime/optimizer/optimizer_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(OptimizerPoolTest, EveryChunkRunsOnce) {
  for (int threads : {1, 2, 5}) {
    OptimizerPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (int64_t chunks : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(chunks);
      pool.Run(chunks, [&calls](int64_t chunk) { ++calls[chunk]; });
      for (const auto& count : calls) {
        EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(OptimizerPoolTest, RunReturnsOnlyWhenAllIsDone) {
  OptimizerPool pool(3);
  int64_t sum = 0;  // written by the pool, read here without more synchronisation
  for (int round = 1; round <= 2000; ++round) {
    std::vector<int64_t> results(4);
    pool.Run(4, [&results](int64_t chunk) { results[chunk] = chunk + 1; });
    for (int64_t result : results) {
      sum += result;
    }
    ASSERT_EQ(sum, 10 * round);
  }
}

TEST(OptimizerPoolTest, ThreadsGiveWayWhereTheyAreToldTo) {
  const int outside = getpriority(PRIO_PROCESS, 0);
  for (const int nicer : {0, OptimizerPool::kBesideLaunches}) {
    OptimizerPool pool(1, nicer);
    int inside = 0;
    pool.Run(1, [&](int64_t) { inside = getpriority(PRIO_PROCESS, 0); });
    EXPECT_EQ(inside, std::min(outside + nicer, 19));
  }
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), outside);
}

#if defined(__x86_64__)
TEST(OptimizerPoolTest, ThreadsKeepSubnormals) {
  constexpr unsigned kFlushToZero = 0x8040;  // and denormals are zero
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | kFlushToZero);
  OptimizerPool pool(1);
  __builtin_ia32_ldmxcsr(before);
  volatile float half = 0.5f;
  volatile float result = 0.0f;
  pool.Run(1, [&](int64_t) { result = std::numeric_limits<float>::min() * half; });
  EXPECT_GT(result, 0.0f);
}
#endif

}  // namespace
}  // namespace megatrain
