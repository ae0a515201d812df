#include "runtime/safetensors/safetensors_header.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  return std::string(ParseSafetensorsHeader(text).status().message());
}

constexpr char kTwo[] = R"({"__metadata__":{"format":"pt"},)"
                        R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";

TEST(SafetensorsHeaderTest, ReadsTensorsByOffset) {
  auto header = ParseSafetensorsHeader(kTwo);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "b");
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(header->tensors[0].element_count(), 6);
  EXPECT_EQ(header->tensors[1].dtype, TensorDtype::kBf16);
  EXPECT_EQ(header->tensors[1].offset_bytes, 24);
  EXPECT_EQ(header->DataBytes(), 26);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafetensorsHeaderTest, WritesWhatItReads) {
  auto header = ParseSafetensorsHeader(kTwo);
  ASSERT_TRUE(header.ok()) << header.status();
  const std::string bytes = SerializeSafetensorsHeader(*header);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const std::string text = bytes.substr(8);
  EXPECT_EQ(bytes.substr(0, 8),
            std::string(1, static_cast<char>(text.size())) + std::string(7, '\0'));
  EXPECT_EQ(text.substr(0, sizeof(kTwo) - 1), kTwo);
  EXPECT_EQ(text.find_first_not_of(' ', sizeof(kTwo) - 1), text.npos);
}

TEST(SafetensorsHeaderTest, EmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(ParseSafetensorsHeader("{}").ok());
  auto header = ParseSafetensorsHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                       R"("b":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},)"
                                       R"("c":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})");
  EXPECT_TRUE(header.ok()) << header.status();
}

std::string One(const std::string& fields) { return R"({"w":{)" + fields + "}}"; }

TEST(SafetensorsHeaderTest, NamesTheTensorThatIsWrong) {
  const std::string shape = R"("shape":[2],)";
  const std::string offsets = R"("data_offsets":[0,8])";
  const std::string dtype = R"("dtype":"F32",)";
  EXPECT_TRUE(ParseSafetensorsHeader(One(dtype + shape + offsets)).ok());
  EXPECT_THAT(ErrorOf(One(shape + offsets)), HasSubstr("\"w\": has no dtype"));
  EXPECT_THAT(ErrorOf(One(R"("dtype":"F4",)" + shape + offsets)), HasSubstr("dtype \"F4\""));
  EXPECT_THAT(ErrorOf(One(dtype + offsets)), HasSubstr("\"w\": shape is not a list"));
  EXPECT_THAT(ErrorOf(One(dtype + R"("shape":[-2],)" + offsets)), HasSubstr("shape holds -2"));
  EXPECT_THAT(ErrorOf(One(dtype + R"("shape":[2.0],)" + offsets)), HasSubstr("shape holds 2.0"));
  EXPECT_THAT(ErrorOf(One(dtype + shape + R"("data_offsets":[8,0])")), HasSubstr("data_offsets"));
  EXPECT_THAT(ErrorOf(One(dtype + shape + R"("data_offsets":[0])")), HasSubstr("data_offsets"));
  EXPECT_THAT(ErrorOf(One(dtype + shape + R"("data_offsets":[0,12])")), HasSubstr("span 12 bytes"));
  EXPECT_THAT(ErrorOf(One(dtype + shape + R"("data_offsets":[4,12])")),
              HasSubstr("begins at byte 4"));
  EXPECT_THAT(ErrorOf(One(dtype + R"("shape":[4294967296,4294967296,4294967296],)" + offsets)),
              HasSubstr("span 8 bytes"));
  EXPECT_THAT(ErrorOf(R"({"w":3})"), HasSubstr("\"w\": is not an object"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("not an object"));
  EXPECT_THAT(ErrorOf(R"({"__metadata__":{"format":1}})"), HasSubstr("\"format\" is not a string"));
  EXPECT_THAT(ErrorOf(R"({"w":{},"w":{}})"), HasSubstr("\"w\" appears twice"));
}

TEST(SafetensorsHeaderTest, RefusesOverlapsAndGaps) {
  const auto two = [](const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)") +
           R"("b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_TRUE(ParseSafetensorsHeader(two("[4,8]")).ok());
  EXPECT_THAT(ErrorOf(two("[3,7]")), HasSubstr("\"b\": begins at byte 3"));
  EXPECT_THAT(ErrorOf(two("[0,4]")), HasSubstr("begins at byte 0"));
  EXPECT_THAT(ErrorOf(two("[5,9]")), HasSubstr("\"b\": begins at byte 5"));
  EXPECT_THAT(ErrorOf(two("[9223372036854775803,9223372036854775807]")), HasSubstr("\"b\""));
  EXPECT_THAT(ErrorOf(two("[9223372036854775808,9223372036854775812]")), HasSubstr("data_offsets"));
}

TEST(SafetensorsHeaderTest, BoundsDepth) {
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("deeper"));
  EXPECT_THAT(ErrorOf(R"({"w":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})"),
              HasSubstr("deeper"));
}

TEST(SafetensorsHeaderTest, NeverCrashesOnDamagedText) {
  const std::string good = kTwo;
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseSafetensorsHeader(good.substr(0, length)).ok()) << length;
  }
  std::mt19937 random(3);
  for (int round = 0; round < 10'000; ++round) {
    std::string damaged = good;
    for (unsigned i = 0; i <= random() % 3; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    auto header = ParseSafetensorsHeader(damaged);
    if (header.ok()) {
      EXPECT_EQ(ParseSafetensorsHeader(SerializeSafetensorsHeader(*header).substr(8))->DataBytes(),
                header->DataBytes());
    }
    std::string noise(random() % 64, '\0');
    for (char& c : noise) {
      c = static_cast<char>(random());
    }
    EXPECT_FALSE(ParseSafetensorsHeader(noise).ok());
  }
}

}  // namespace
}  // namespace megatrain
