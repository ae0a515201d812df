#include "server/files/folder_copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "server/files/hash_file.h"

namespace megatrain {
namespace {

class FolderCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_ + "/from");
    Write("from/b", std::string(3 << 20, 'b'));
    Write("from/a", "a");
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<NamedFile> Files() const {
    return {{"b", folder_ + "/from/b"}, {"a", folder_ + "/from/a"}};
  }

  PosixFileSystem posix_;
  FaultyFileSystem disk_{&posix_};
  std::string folder_;
};

TEST_F(FolderCopyTest, CopiesAndDescribes) {
  const auto facts = CopyFiles(disk_, Files(), folder_ + "/to", nullptr);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(Read("to/b"), Read("from/b"));
  EXPECT_EQ(facts->size_bytes, (3 << 20) + 1);
  const auto described = DescribeFolder(disk_, folder_ + "/to");
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->fingerprint, facts->fingerprint);
  EXPECT_EQ(described->size_bytes, facts->size_bytes);
  Write("to/a", "c");
  EXPECT_NE(DescribeFolder(disk_, folder_ + "/to")->fingerprint, facts->fingerprint);
}

TEST_F(FolderCopyTest, KeepsFoldersWithin) {
  auto files = Files();
  files.push_back({"x/y/c", folder_ + "/from/a"});
  const auto facts = CopyFiles(disk_, files, folder_ + "/to", nullptr);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(Read("to/x/y/c"), "a");
  EXPECT_EQ(DescribeFolder(disk_, folder_ + "/to")->fingerprint, facts->fingerprint);
  std::filesystem::create_symlink("a", folder_ + "/to/x/link");
  const auto listed = *ListFiles(folder_ + "/to");
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_EQ(listed[2].name, "x/y/c");
  EXPECT_EQ(listed[2].path, folder_ + "/to/x/y/c");
  EXPECT_FALSE(ListFiles(folder_ + "/absent").ok());
}

TEST_F(FolderCopyTest, AFullDiskIsAnError) {
  disk_.FillAfter(1 << 20);
  EXPECT_TRUE(
      absl::IsResourceExhausted(CopyFiles(disk_, Files(), folder_ + "/to", nullptr).status()));
}

TEST_F(FolderCopyTest, StopsWhenAsked) {
  const auto stop = [](int64_t done_bytes, int64_t all_bytes) {
    EXPECT_EQ(all_bytes, (3 << 20) + 1);
    return done_bytes > (1 << 20) ? absl::CancelledError("stop") : absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsCancelled(CopyFiles(disk_, Files(), folder_ + "/to", stop).status()));
}

TEST_F(FolderCopyTest, ReadsNoLinkNoPipeAndNoFolder) {
  ASSERT_EQ(::symlink("a", (folder_ + "/from/link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ + "/from/pipe").c_str(), 0600), 0);
  for (const char* name : {"/from/link", "/from/pipe", "/from", "/absent"}) {
    EXPECT_FALSE(HashFile(folder_ + name).ok()) << name;
  }
}

TEST_F(FolderCopyTest, KnownHash) {
  EXPECT_EQ(*HashFile(folder_ + "/from/a"),
            "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
}

}  // namespace
}  // namespace megatrain
