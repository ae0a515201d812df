#include "runtime/base/write_file.h"

#include "gtest/gtest.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"

namespace megatrain {
namespace {

TEST(WriteFileTest, AFileIsReplacedWholeOrNotAtAll) {
  PosixFileSystem posix;
  FaultyFileSystem disk(&posix);
  const std::string path = testing::TempDir() + "/whole";
  ASSERT_TRUE(ReplaceFile(disk, path, "as it was").ok());
  disk.FailAt(int64_t{1} << 40, FaultyFileSystem::Fault::kCrash);  // counts from here on
  ASSERT_TRUE(ReplaceFile(disk, path, "as it was").ok());
  const int64_t operations = disk.operation_count();
  ASSERT_GT(operations, 3);
  for (int64_t operation = 0; operation < operations; ++operation) {
    ASSERT_TRUE(ReplaceFile(posix, path, "as it was").ok());
    disk.FailAt(operation, FaultyFileSystem::Fault::kCrash);
    EXPECT_FALSE(ReplaceFile(disk, path, "as it is to be").ok()) << operation;
    disk.Repair();
    const std::string found = posix.ReadFile(path, 100).value();
    EXPECT_TRUE(found == "as it was" || found == "as it is to be") << operation << found;
  }
  ASSERT_TRUE(ReplaceFile(disk, path, "as it is to be").ok());
  EXPECT_EQ(posix.ReadFile(path, 100).value(), "as it is to be");
  EXPECT_FALSE(posix.Exists(path + ".partial"));
}

}  // namespace
}  // namespace megatrain
