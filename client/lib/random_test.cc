#include "client/lib/random.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Lt;
using ::testing::MatchesRegex;

TEST(RandomTest, RequestIdsAreUuidsAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = NewRequestId();
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                 "[0-9a-f]{12}"));
    EXPECT_TRUE(seen.insert(id).second);
  }
}

TEST(RandomTest, AnIdOfContentIsAFunctionOfIt) {
  EXPECT_EQ(RequestIdFor("a"), RequestIdFor("a"));
  EXPECT_NE(RequestIdFor("a"), RequestIdFor("b"));
  EXPECT_THAT(RequestIdFor("a"), MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-"
                                              "[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
}

TEST(RandomTest, FractionsFillTheUnitInterval) {
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const double fraction = RandomFraction();
    EXPECT_THAT(fraction, AllOf(Ge(0.0), Lt(1.0)));
    sum += fraction;
  }
  EXPECT_NEAR(sum / 1000, 0.5, 0.1);  // eleven standard deviations
}

}  // namespace
}  // namespace megatrain
