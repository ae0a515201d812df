#include "server/names/resource_name.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using ::testing::Optional;

TEST(ResourceNameTest, IdsFollowTheRule) {
  for (const std::string good : {"a", "a1", "a-b", "smollm2-135m"}) {
    EXPECT_TRUE(IsResourceId(good)) << good;
  }
  for (const std::string bad : {"", "A", "1a", "-a", "a-", "a_b", "a/b", "ä", "a ", ".."}) {
    EXPECT_FALSE(IsResourceId(bad)) << bad;
  }
  EXPECT_TRUE(IsResourceId(std::string(63, 'a')));
  EXPECT_FALSE(IsResourceId(std::string(64, 'a')));
  EXPECT_FALSE(IsResourceId(std::string("a\0b", 3)));
}

TEST(ResourceNameTest, MatchesPatterns) {
  EXPECT_THAT(MatchResourceName("jobs/*", "jobs/addition"), Optional(ElementsAre("addition")));
  EXPECT_THAT(MatchResourceName("models/*/versions/*", "models/m/versions/12"),
              Optional(ElementsAre("m", "12")));
  for (const std::string bad :
       {"", "jobs", "jobs/", "/jobs/a", "jobs/a/", "jobs/a/b", "Jobs/a", "jobs/..", "models/a"}) {
    EXPECT_EQ(MatchResourceName("jobs/*", bad), std::nullopt) << bad;
  }
  for (const std::string bad : {"0", "01", "-1", "a", "", "9999999999999999999"}) {
    EXPECT_EQ(MatchResourceName("models/*/versions/*", "models/m/versions/" + bad), std::nullopt);
  }
}

TEST(ResourceNameTest, MadeNamesAreValidAndDiffer) {
  EXPECT_THAT(NewUid(), MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                     "[0-9a-f]{12}"));
  EXPECT_NE(NewUid(), NewUid());
  EXPECT_TRUE(IsResourceId(NewResourceId("job")));
  EXPECT_NE(NewResourceId("job"), NewResourceId("job"));
}

}  // namespace
}  // namespace megatrain
