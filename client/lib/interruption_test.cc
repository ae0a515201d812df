#include "client/lib/interruption.h"

#include <csignal>
#include <thread>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(InterruptionTest, StartsUntriggeredAndStaysTriggered) {
  Interruption interruption;
  EXPECT_FALSE(interruption.triggered());
  EXPECT_FALSE(interruption.WaitFor(absl::Milliseconds(1)));
  interruption.Trigger();
  EXPECT_TRUE(interruption.triggered());
  EXPECT_TRUE(interruption.WaitFor(absl::Hours(1))) << "does not wait";
}

TEST(InterruptionTest, EndsAWaitOfAnotherThread) {
  Interruption interruption;
  std::thread trigger([&] { interruption.Trigger(); });
  EXPECT_TRUE(interruption.WaitFor(absl::InfiniteDuration()));
  trigger.join();
}

Interruption* handled = nullptr;

TEST(InterruptionTest, TriggersFromASignalHandler) {
  Interruption interruption;
  handled = &interruption;
  std::signal(SIGUSR1, [](int) { handled->Trigger(); });
  std::raise(SIGUSR1);
  EXPECT_TRUE(interruption.triggered());
}

}  // namespace
}  // namespace megatrain
