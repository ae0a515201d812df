#include "client/lib/file_digest.h"

#include <fstream>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

std::string FileOf(const std::string& content) {
  const std::string path = ::testing::TempDir() + "/digest_me";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(FileDigestTest, GivesSizeAndHash) {
  int64_t seen = -1;
  const auto digest = DigestFile(FileOf("abc"), [&](int64_t bytes) { seen = bytes; });
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(digest->size_bytes, 3);
  EXPECT_EQ(seen, 3);
  // FIPS 180-4's example.
  EXPECT_EQ(digest->sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(FileDigestTest, ReadsMoreThanOnePiece) {
  const std::string million(1'000'000, 'a');
  const auto digest = DigestFile(FileOf(million + million), [](int64_t) {});
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(digest->size_bytes, 2'000'000);
  EXPECT_NE(digest->sha256, DigestFile(FileOf(million), [](int64_t) {})->sha256);
}

TEST(FileDigestTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(DigestFile("/nowhere/at/all", [](int64_t) {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(DigestFile(::testing::TempDir(), [](int64_t) {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
