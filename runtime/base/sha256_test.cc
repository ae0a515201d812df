#include "runtime/base/sha256.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

// Of FIPS 180-2, appendix B.
TEST(Sha256Test, GivesTheStandardsValues) {
  Sha256 short_text;
  short_text.Update("abc");
  EXPECT_EQ(short_text.HexDigest(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 million;
  for (int i = 0; i < 1000; ++i) {
    million.Update(std::string(1000, 'a'));
  }
  EXPECT_EQ(million.HexDigest(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace megatrain
