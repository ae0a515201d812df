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

TEST(Crc32cTest, GoesOnWhereItEnded) {
  const std::string text = "123456789";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(text.substr(0, cut)), text.substr(cut)), Crc32c(text)) << cut;
  }
}

TEST(Crc32cTest, TwoTextsAreCombined) {
  std::string text;
  for (int i = 0; i < 70'000; ++i) {
    text += static_cast<char>(int64_t{i} * i);
  }
  for (const size_t cut : {0, 1, 8, 4096, 65'536, 69'999, 70'000}) {
    const std::string second = text.substr(cut);
    EXPECT_EQ(CombineCrc32c(Crc32c(text.substr(0, cut)), Crc32c(second),
                            static_cast<int64_t>(second.size())),
              Crc32c(text))
        << cut;
  }
}

}  // namespace
}  // namespace megatrain
