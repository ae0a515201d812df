#include "runtime/base/allowed_processors.h"

#include <sched.h>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(AllowedProcessorsTest, CountsWhatAffinityLeaves) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(AllowedProcessors(), CPU_COUNT(&all));

  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; CPU_COUNT(&one) == 0; ++processor) {
    if (CPU_ISSET(processor, &all)) {
      CPU_SET(processor, &one);
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AllowedProcessors(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

}  // namespace
}  // namespace megatrain
