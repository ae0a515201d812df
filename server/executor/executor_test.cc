#include "server/executor/executor.h"

#include <atomic>
#include <future>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(ExecutorTest, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    Executor executor(1);
    for (int i = 0; i < 5; ++i) {
      executor.Run([&order, i] { order.push_back(i); });
    }
  }
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(ExecutorTest, WorkThatBlocksDoesNotBlockOtherWork) {
  std::promise<void> release;
  Executor executor(2);
  executor.Run([&release] { release.get_future().wait(); });
  executor.Run([&release] { release.set_value(); });
}

TEST(ExecutorTest, EndsOnlyAfterAllWorkAlsoThatGivenByWork) {
  std::atomic<int> count = 0;
  {
    Executor executor(3);
    for (int i = 0; i < 100; ++i) {
      executor.Run([&] {
        ++count;
        executor.Run([&count] { ++count; });
      });
    }
  }
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace megatrain
