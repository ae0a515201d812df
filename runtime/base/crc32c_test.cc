#include "runtime/base/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

// Values of RFC 3720, B.4.
TEST(Crc32cTest, GivesTheStandardsValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

}  // namespace
}  // namespace megatrain
