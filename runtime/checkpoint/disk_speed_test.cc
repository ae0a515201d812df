#include "runtime/checkpoint/disk_speed.h"

#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"

namespace megatrain {
namespace {

constexpr int64_t kBytes = int64_t{32} << 20;

std::string EmptyFolder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  PosixFileSystem files;
  EXPECT_TRUE(files.RemoveTree(folder).ok());
  EXPECT_TRUE(files.MakeFolders(folder).ok());
  return folder;
}

TEST(DiskSpeedTest, WritesForATimeAndLeavesNothing) {
  SystemClock clock;
  PosixFileSystem files;
  const std::string folder = EmptyFolder("speed");
  const auto speed = MeasureDiskWrite(folder, kBytes, absl::Seconds(1), files, clock);
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(*speed, 100'000);
  EXPECT_LT(*speed, int64_t{1} << 40);
  EXPECT_TRUE(files.ListFolder(folder)->empty());
}

TEST(DiskSpeedTest, ADiskWithoutRoomHasNoSpeed) {
  SystemClock clock;
  PosixFileSystem files;
  const std::string folder = EmptyFolder("full");
  const int64_t more_bytes = (files.AvailableBytes(folder).value() / kBytes + 1000) * kBytes;
  const auto speed = MeasureDiskWrite(folder, more_bytes, absl::Seconds(1), files, clock);
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_EQ(*speed, 0);
  EXPECT_TRUE(files.ListFolder(folder)->empty());
}

}  // namespace
}  // namespace megatrain
