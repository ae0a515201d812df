#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

// The flag makes the writes follow each other, so that neither can hide the other from the
// sanitizer; being relaxed, it does not order them.
TEST(Race, TwoThreadsWriteOneVariable) {
  int value = 0;
  std::atomic<bool> written = false;
  std::thread other([&value, &written] {
    value = 1;
    written.store(true, std::memory_order_relaxed);
  });
  while (!written.load(std::memory_order_relaxed)) std::this_thread::yield();
  value = 2;
  other.join();
  EXPECT_EQ(value, 2);
}

}  // namespace
}  // namespace megatrain
