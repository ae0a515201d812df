#ifndef RUNTIME_BASE_FAULTY_FILE_SYSTEM_H_
#define RUNTIME_BASE_FAULTY_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// A disk for tests that fails on command and passes everything else on to a real one.
// Thread-safe.
class FaultyFileSystem final : public FileSystem {
 public:
  // `base` outlives this.
  explicit FaultyFileSystem(FileSystem* base) : base_(base) {}

  // The disk is full once `size_bytes` more are written: the write that crosses the border leaves
  // the part that fits and fails with RESOURCE_EXHAUSTED, as do all later ones, new files and new
  // folders. Not announced: AvailableBytes does not tell, as with a quota or another writer.
  void FillAfter(int64_t size_bytes, bool announced = true);

  // Every write, sync and read fails with an input/output error from now on.
  void Break();

  // No faults any more.
  void Repair();

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path,
                                                               bool append) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes) override;
  absl::StatusOr<int64_t> FileSize(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) override;
  absl::Status MakeFolders(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Truncate(const std::string& path, int64_t size_bytes) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::StatusOr<int64_t> AvailableBytes(const std::string& path) override;

 private:
  class File;

  // Takes up to `wanted_bytes` of what the disk still holds and returns how many.
  int64_t TakeBytes(int64_t wanted_bytes);
  absl::Status CheckWorks(const std::string& path) const;
  absl::Status CheckHasSpace(const std::string& path) const;

  static constexpr int64_t kUnlimited = -1;

  FileSystem* const base_;
  mutable Mutex mutex_;
  int64_t left_bytes_ ABSL_GUARDED_BY(mutex_) = kUnlimited;
  bool announced_ ABSL_GUARDED_BY(mutex_) = true;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_FAULTY_FILE_SYSTEM_H_
