#include "client/cli/checkpoint_name.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

constexpr char kFull[] = "jobs/a/checkpoints/step-00000120";

TEST(CheckpointNameTest, ShortAndLong) {
  for (const char* text : {kFull, "a/step-00000120", "jobs/a/step-00000120"}) {
    EXPECT_EQ(*CheckpointName(text), kFull) << text;
    EXPECT_EQ(*CheckpointNameIn("jobs/b", text), kFull) << text;
    EXPECT_TRUE(NamesCheckpoint(text)) << text;
  }
  EXPECT_EQ(*CheckpointNameIn("jobs/a", "step-00000120"), kFull);
  EXPECT_EQ(ShortCheckpointName(kFull), "a/step-00000120");
  EXPECT_EQ(JobOfCheckpoint(kFull), "jobs/a");
}

TEST(CheckpointNameTest, OthersAreNone) {
  for (const char* text : {"", "a", "jobs/a", "a/", "/s", "a/b/c", "jobs/a/models/s",
                           "jobs/a/checkpoints/", "models/a/versions/1"}) {
    EXPECT_EQ(CheckpointName(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_FALSE(NamesCheckpoint(text)) << text;
  }
}

}  // namespace
}  // namespace megatrain
