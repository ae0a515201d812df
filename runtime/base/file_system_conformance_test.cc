// One suite for every FileSystem, and what only the faulty one does.

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/file_system.h"
#include "runtime/base/posix_file_system.h"

namespace {

// Paths of what this process synced, in order.
std::vector<std::string>& SyncedPaths() {
  static auto& paths = *new std::vector<std::string>();
  return paths;
}

}  // namespace

// In place of the C library's: does the same, and remembers it.
extern "C" int fsync(int fd) {
  SyncedPaths().push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A fresh folder below the test's own.
std::string MakeTestFolder() {
  std::string folder = std::string(::testing::TempDir()) + "/file_system_XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  return folder;
}

void WriteFile(FileSystem& disk, const std::string& path, std::string_view text) {
  auto file = disk.OpenForWriting(path, /*append=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(text).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
}

enum class Kind { kPosix, kFaultyWithoutFault };

class FileSystemTest : public ::testing::TestWithParam<Kind> {
 protected:
  FileSystem& disk() {
    if (GetParam() == Kind::kPosix) return posix_;
    return faulty_;
  }

  PosixFileSystem posix_;
  FaultyFileSystem faulty_{&posix_};
  const std::string folder_ = MakeTestFolder();
};

INSTANTIATE_TEST_SUITE_P(AllKinds, FileSystemTest,
                         ::testing::Values(Kind::kPosix, Kind::kFaultyWithoutFault));

TEST_P(FileSystemTest, ReadsWhatWasWritten) {
  const std::string path = folder_ + "/a";
  const std::string text(200'000, 'x');
  WriteFile(disk(), path, text);
  EXPECT_EQ(*disk().ReadFile(path, 200'000), text);
  EXPECT_EQ(*disk().FileSize(path), 200'000);
}

TEST_P(FileSystemTest, RefusesToReadMoreThanTheLimit) {
  WriteFile(disk(), folder_ + "/a", "four");
  const auto text = disk().ReadFile(folder_ + "/a", 3);
  EXPECT_TRUE(absl::IsResourceExhausted(text.status())) << text.status();
}

TEST_P(FileSystemTest, AppendsOrTruncates) {
  const std::string path = folder_ + "/a";
  WriteFile(disk(), path, "one");
  auto file = disk().OpenForWriting(path, /*append=*/true);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("two").ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(*disk().ReadFile(path, 100), "onetwo");
  ASSERT_TRUE(disk().Truncate(path, 4).ok());
  EXPECT_EQ(*disk().ReadFile(path, 100), "onet");
  WriteFile(disk(), path, "3");
  EXPECT_EQ(*disk().ReadFile(path, 100), "3");
}

TEST_P(FileSystemTest, NamesTheAbsentPath) {
  const std::string path = folder_ + "/absent";
  for (const absl::Status& status :
       {disk().ReadFile(path, 100).status(), disk().FileSize(path).status(),
        disk().ListFolder(path).status(), disk().SyncFolder(path), disk().Truncate(path, 0),
        disk().Rename(path, folder_ + "/b"), disk().Link(path, folder_ + "/b"),
        disk().AvailableBytes(path).status(), disk().OpenForWriting(path + "/file", false).status(),
        disk().OpenForBlocks(path + "/file", 1).status(), disk().OpenForReading(path).status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_FALSE(disk().Exists(path));
  EXPECT_TRUE(disk().RemoveTree(path).ok());
}

TEST_P(FileSystemTest, MakesListsAndRemovesFolders) {
  const std::string deep = folder_ + "/x/y/z";
  ASSERT_TRUE(disk().MakeFolders(deep).ok());
  ASSERT_TRUE(disk().MakeFolders(deep).ok());
  WriteFile(disk(), folder_ + "/x/b", "");
  WriteFile(disk(), folder_ + "/x/a", "");
  ASSERT_TRUE(disk().SyncFolder(folder_ + "/x").ok());
  EXPECT_THAT(*disk().ListFolder(folder_ + "/x"), ElementsAre("a", "b", "y"));
  ASSERT_TRUE(disk().RemoveTree(folder_ + "/x").ok());
  EXPECT_FALSE(disk().Exists(folder_ + "/x"));
}

TEST_P(FileSystemTest, NewFoldersOutliveALossOfPower) {
  ASSERT_TRUE(disk().MakeFolders(folder_ + "/x").ok());
  SyncedPaths().clear();
  ASSERT_TRUE(disk().MakeFolders(folder_ + "/x/y/z").ok());
  const std::string folder = std::filesystem::canonical(folder_);
  EXPECT_THAT(SyncedPaths(), ElementsAre(folder + "/x", folder + "/x/y"));
}

TEST_P(FileSystemTest, MakesNoFolderInPlaceOfAFile) {
  WriteFile(disk(), folder_ + "/a", "");
  EXPECT_FALSE(disk().MakeFolders(folder_ + "/a").ok());
  EXPECT_FALSE(disk().MakeFolders(folder_ + "/a/b").ok());
}

TEST_P(FileSystemTest, RenameReplacesAFileButNoFullFolder) {
  WriteFile(disk(), folder_ + "/a", "new");
  WriteFile(disk(), folder_ + "/b", "old");
  ASSERT_TRUE(disk().Rename(folder_ + "/a", folder_ + "/b").ok());
  EXPECT_EQ(*disk().ReadFile(folder_ + "/b", 100), "new");
  ASSERT_TRUE(disk().MakeFolders(folder_ + "/from").ok());
  ASSERT_TRUE(disk().MakeFolders(folder_ + "/to/full").ok());
  EXPECT_FALSE(disk().Rename(folder_ + "/from", folder_ + "/to").ok());
}

TEST_P(FileSystemTest, ASecondNameKeepsTheFile) {
  WriteFile(disk(), folder_ + "/a", "text");
  ASSERT_TRUE(disk().Link(folder_ + "/a", folder_ + "/b").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(disk().Link(folder_ + "/a", folder_ + "/b")));
  ASSERT_TRUE(disk().RemoveTree(folder_ + "/a").ok());
  EXPECT_EQ(*disk().ReadFile(folder_ + "/b", 100), "text");
}

TEST_P(FileSystemTest, RemovesALinkAndNotItsTarget) {
  ASSERT_TRUE(disk().MakeFolders(folder_ + "/kept").ok());
  WriteFile(disk(), folder_ + "/kept/a", "");
  ASSERT_TRUE(disk().MakeFolders(folder_ + "/gone").ok());
  ASSERT_EQ(::symlink((folder_ + "/kept").c_str(), (folder_ + "/gone/link").c_str()), 0);
  ASSERT_TRUE(disk().RemoveTree(folder_ + "/gone").ok());
  EXPECT_TRUE(disk().Exists(folder_ + "/kept/a"));
}

std::string ReadAll(FileSystem& disk, const std::string& path) {
  const auto file = disk.OpenForReading(path);
  EXPECT_TRUE(file.ok()) << file.status();
  std::string text(static_cast<size_t>((*file)->size_bytes()), '\0');
  EXPECT_TRUE((*file)->ReadAt(0, text).ok());
  return text;
}

// Memory of blocks, as direct writes want it, filled with a pattern.
class BlockMemory {
 public:
  explicit BlockMemory(size_t size_bytes) : text_(size_bytes + kDiskBlockBytes, '\0') {
    void* start = text_.data();
    size_t space = text_.size();
    start_ = static_cast<char*>(std::align(kDiskBlockBytes, size_bytes, start, space));
    for (size_t i = 0; i < size_bytes; ++i) {
      start_[i] = static_cast<char>(i * 7 + i / 251);
    }
  }

  std::span<const char> At(int64_t offset, int64_t size) const {
    return {start_ + offset, static_cast<size_t>(size)};
  }

 private:
  std::string text_;
  char* start_;
};

TEST_P(FileSystemTest, ThreadsWriteTheBlocksOfOneFile) {
  constexpr int64_t kThreads = 4;
  constexpr int64_t kPiece = 3 * kDiskBlockBytes;
  const std::string path = folder_ + "/a";
  WriteFile(disk(), path, "what was there before");
  const BlockMemory memory(kThreads * kPiece);
  const auto file = disk().OpenForBlocks(path, kThreads * kPiece);
  ASSERT_TRUE(file.ok()) << file.status();
  {
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        EXPECT_TRUE((*file)->WriteAt(i * kPiece, memory.At(i * kPiece, kPiece)).ok());
      });
    }
  }
  ASSERT_TRUE((*file)->Sync().ok());
  const std::span<const char> all = memory.At(0, kThreads * kPiece);
  EXPECT_EQ(ReadAll(disk(), path), std::string(all.data(), all.size()));
}

TEST_P(FileSystemTest, BlocksAtAnyPlaceAndOfAnySizeAreWrittenToo) {
  const std::string path = folder_ + "/a";
  const BlockMemory memory(3 * kDiskBlockBytes);
  const auto file = disk().OpenForBlocks(path, 2 * kDiskBlockBytes + 5);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->WriteAt(0, memory.At(0, kDiskBlockBytes)).ok());
  ASSERT_TRUE((*file)->WriteAt(kDiskBlockBytes, memory.At(kDiskBlockBytes, 7)).ok());
  ASSERT_TRUE(
      (*file)
          ->WriteAt(kDiskBlockBytes + 7, memory.At(kDiskBlockBytes + 7, kDiskBlockBytes - 2))
          .ok());
  ASSERT_TRUE((*file)->Sync().ok());
  const std::span<const char> all = memory.At(0, 2 * kDiskBlockBytes + 5);
  EXPECT_EQ(ReadAll(disk(), path), std::string(all.data(), all.size()));
}

TEST_P(FileSystemTest, ReadsAnywhereAndSaysWhereAFileEnds) {
  const std::string path = folder_ + "/a";
  WriteFile(disk(), path, std::string(kDiskBlockBytes, 'x') + "tail");
  const auto file = disk().OpenForReading(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size_bytes(), kDiskBlockBytes + 4);
  std::string text(6, '\0');
  ASSERT_TRUE((*file)->ReadAt(kDiskBlockBytes - 2, text).ok());
  EXPECT_EQ(text, "xxtail");
  const absl::Status beyond = (*file)->ReadAt(kDiskBlockBytes, text);
  EXPECT_EQ(beyond.code(), absl::StatusCode::kDataLoss) << beyond;
  EXPECT_THAT(std::string(beyond.message()), HasSubstr(path));
  EXPECT_TRUE(absl::IsInvalidArgument(disk().OpenForReading(folder_).status()));
}

TEST_P(FileSystemTest, TellsTheAvailableBytes) {
  const auto bytes = disk().AvailableBytes(folder_);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 0);
}

class FaultyFileSystemTest : public ::testing::Test {
 protected:
  PosixFileSystem posix_;
  FaultyFileSystem disk_{&posix_};
  const std::string folder_ = MakeTestFolder();
};

TEST_F(FaultyFileSystemTest, KeepsWhatFitsOnAFullDisk) {
  disk_.FillAfter(5);
  auto file = disk_.OpenForWriting(folder_ + "/a", false);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append("abc").ok());
  const absl::Status status = (*file)->Append("def");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/a"));
  EXPECT_EQ(*disk_.ReadFile(folder_ + "/a", 100), "abcde");
  EXPECT_EQ(*disk_.AvailableBytes(folder_), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(disk_.MakeFolders(folder_ + "/b")));
  EXPECT_TRUE(absl::IsResourceExhausted(disk_.OpenForWriting(folder_ + "/c", false).status()));
  EXPECT_FALSE(disk_.Exists(folder_ + "/c"));
  disk_.FillAfter(1, /*announced=*/false);
  EXPECT_GT(*disk_.AvailableBytes(folder_), 1);
  EXPECT_FALSE((*file)->Append("gh").ok());
  disk_.Repair();
  EXPECT_TRUE((*file)->Append("f").ok());
}

TEST_F(FaultyFileSystemTest, ABrokenDiskFailsWritesSyncsAndReads) {
  auto file = disk_.OpenForWriting(folder_ + "/a", false);
  ASSERT_TRUE(file.ok());
  disk_.Break();
  EXPECT_FALSE((*file)->Append("a").ok());
  EXPECT_FALSE((*file)->Sync().ok());
  EXPECT_FALSE(disk_.ReadFile(folder_ + "/a", 100).ok());
  EXPECT_FALSE(disk_.SyncFolder(folder_).ok());
  EXPECT_FALSE(disk_.Rename(folder_ + "/a", folder_ + "/b").ok());
  disk_.Repair();
  EXPECT_TRUE((*file)->Sync().ok());
}

TEST_F(FaultyFileSystemTest, ADeadProcessChangesNothing) {
  disk_.CrashAfter(3);
  auto file = disk_.OpenForWriting(folder_ + "/a", false);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Append("abcdef").code(), absl::StatusCode::kAborted);
  EXPECT_FALSE((*file)->Append("g").ok());
  EXPECT_FALSE(disk_.RemoveTree(folder_ + "/a").ok());
  EXPECT_FALSE(disk_.MakeFolders(folder_ + "/b").ok());
  EXPECT_EQ(*posix_.ReadFile(folder_ + "/a", 100), "abc");
}

TEST_F(FaultyFileSystemTest, TheOperationThatIsNamedFailsAndLeavesHalf) {
  using Fault = FaultyFileSystem::Fault;
  for (const Fault fault : {Fault::kFull, Fault::kBroken, Fault::kCrash, Fault::kOnce}) {
    disk_.Repair();
    disk_.FailAt(2, fault);
    auto file = disk_.OpenForWriting(folder_ + "/a", false);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE((*file)->Append("ab").ok());
    EXPECT_FALSE((*file)->Append("cdef").ok());
    EXPECT_EQ(disk_.operation_count(), 3);
    EXPECT_EQ(*posix_.ReadFile(folder_ + "/a", 100), "abcd");
    EXPECT_EQ((*file)->Append("g").ok(), fault == Fault::kOnce);
    EXPECT_EQ(disk_.RemoveTree(folder_ + "/a").ok(), fault != Fault::kCrash);
  }
}

}  // namespace
}  // namespace megatrain
