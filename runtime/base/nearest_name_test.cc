#include "runtime/base/nearest_name.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(NearestNameTest, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("stpes", "steps"), 1);
}

TEST(NearestNameTest, FindsTheNearest) {
  EXPECT_EQ(NearestName("stpes", {"epochs", "steps", "seed"}), "steps");
  EXPECT_EQ(NearestName("sed", {"steps", "seed"}), "seed");
  EXPECT_EQ(NearestName("o", {"ok", "no"}), "ok") << "the first of equals";
}

TEST(NearestNameTest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(NearestName("colour", {"steps", "epochs"}), "");
  EXPECT_EQ(NearestName("x", {}), "");
}

}  // namespace
}  // namespace megatrain
