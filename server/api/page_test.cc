#include "server/api/page.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(PageTest, SizesHaveADefaultAndALimit) {
  EXPECT_EQ(ParsePageRequest(0, "", "")->size, 50);
  EXPECT_EQ(ParsePageRequest(7, "", "")->size, 7);
  EXPECT_EQ(ParsePageRequest(5000, "", "")->size, 1000);
  EXPECT_EQ(ParsePageRequest(-1, "", "").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PageTest, ATokenBelongsToItsArguments) {
  const std::string token = MakePageToken("17", "states=1");
  EXPECT_EQ(ParsePageRequest(0, token, "states=1")->cursor, "17");
  EXPECT_EQ(ParsePageRequest(9, token, "states=1")->cursor, "17") << "the size may change";
  EXPECT_EQ(ParsePageRequest(0, token, "states=2").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PageTest, NonsenseIsRefused) {
  for (const std::string token : {"x", "!!!!", "AAAAAAAAAAA", "AAAAAAAAAAAAAAAA"}) {
    EXPECT_EQ(ParsePageRequest(0, token, "").status().code(), absl::StatusCode::kInvalidArgument)
        << token;
  }
}

}  // namespace
}  // namespace megatrain
