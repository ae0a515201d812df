#include "runtime/safetensors/shard_index.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShardIndexTest, ReadsAndWrites) {
  // Counted from zero, as some published models do.
  auto index = ParseShardIndex(R"({"metadata": {"total_size": 1}, "weight_map": {
      "b": "model-00001-of-00002.safetensors", "a": "model-00000-of-00002.safetensors",
      "c": "model-00000-of-00002.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT(index->Files(),
              ElementsAre("model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"));
  const std::string text = SerializeShardIndex(*index, 26);
  EXPECT_THAT(text, HasSubstr("\"total_size\": 26"));
  auto again = ParseShardIndex(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->file_of, index->file_of);
}

TEST(ShardIndexTest, RefusesNamesThatLeaveTheFolderOrTheFormat) {
  for (const char* name : {"../x.safetensors", "/x.safetensors", "a/b.safetensors", "x.bin",
                           ".safetensors", "", ".x.safetensors", "x.safetensors\\u0000"}) {
    const auto index = ParseShardIndex(std::string(R"({"weight_map": {"w": ")") + name + "\"}}");
    EXPECT_EQ(index.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(index.status().message()), HasSubstr("\"w\"")) << name;
  }
}

TEST(ShardIndexTest, RefusesWhatIsNoIndex) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map": 3})", R"({"weight_map": {"w": 3}})"}) {
    EXPECT_FALSE(ParseShardIndex(text).ok()) << text;
  }
}

}  // namespace
}  // namespace megatrain
