// For tests that sync thousands of files: a folder in memory, where the system has one.

#ifndef RUNTIME_BASE_MEMORY_FOLDER_FOR_TEST_H_
#define RUNTIME_BASE_MEMORY_FOLDER_FOR_TEST_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace megatrain {

// New and empty; removed at the end.
class MemoryFolder {
 public:
  MemoryFolder() {
    path_ = "/dev/shm/megatrain_XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      path_ = testing::TempDir() + "/megatrain_XXXXXX";
      EXPECT_NE(mkdtemp(path_.data()), nullptr);
    }
  }
  ~MemoryFolder() { std::filesystem::remove_all(path_); }

  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_MEMORY_FOLDER_FOR_TEST_H_
