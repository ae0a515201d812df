#include "runtime/base/bounded_json.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text, JsonLimits limits = {}) {
  return std::string(ParseBoundedJson(text, limits).status().message());
}

TEST(BoundedJsonTest, ReadsAValue) {
  auto value = ParseBoundedJson(R"({"a": [1, 2.5, "x", null, true]})", {});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][1], 2.5);
}

TEST(BoundedJsonTest, NamesThePlaceOfAMistake) {
  EXPECT_THAT(ErrorOf("{\n\"a\": }"), HasSubstr("line 2, column 6"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("bad JSON"));
  EXPECT_THAT(ErrorOf("{} {}"), HasSubstr("bad JSON"));
  EXPECT_THAT(ErrorOf("\"\xff\""), HasSubstr("UTF-8"));
  EXPECT_THAT(ErrorOf("1e999"), HasSubstr("bad JSON"));
}

TEST(BoundedJsonTest, RefusesARepeatedKeyInOneObjectOnly) {
  EXPECT_THAT(ErrorOf(R"({"a": 1, "a": 2})"), HasSubstr("\"a\" appears twice"));
  EXPECT_TRUE(ParseBoundedJson(R"({"a": {"a": 1}, "b": {"a": 2}})", {}).ok());
}

TEST(BoundedJsonTest, RefusesWhatIsTooLargeOrTooDeep) {
  EXPECT_THAT(ErrorOf("[1, 2]", {.size_bytes = 5}), HasSubstr("limit of 5 bytes"));
  EXPECT_TRUE(ParseBoundedJson("[[1]]", {.depth = 2}).ok());
  EXPECT_THAT(ErrorOf("[[[1]]]", {.depth = 2}), HasSubstr("deeper than 2"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("deeper than 64"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += "{\"a\":";
  }
  EXPECT_THAT(ErrorOf(objects, {.size_bytes = 1 << 20}), HasSubstr("deeper than 64"));
}

TEST(BoundedJsonTest, NeverCrashesOnDamagedText) {
  const std::string good =
      R"({"key": ["text \u00e9", -12, 1.5e3, {"deep": [null, false]}], "b": ""})";
  ASSERT_TRUE(ParseBoundedJson(good, {}).ok());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseBoundedJson(good.substr(0, length), {}).ok()) << length;
  }
  std::mt19937 random(20'240'601);
  for (int round = 0; round < 5'000; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 3; ++i) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    auto value = ParseBoundedJson(damaged, {});
    EXPECT_TRUE(!value.ok() || !value->is_discarded());
  }
}

}  // namespace
}  // namespace megatrain
