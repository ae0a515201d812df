#include <thread>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(Race, TwoThreadsWriteOneVariable) {
  int value = 0;
  auto write = [&value] {
    for (int i = 0; i < 1000; ++i) ++value;
  };
  std::thread other(write);
  write();
  other.join();
  EXPECT_GT(value, 0);
}

}  // namespace
}  // namespace megatrain
