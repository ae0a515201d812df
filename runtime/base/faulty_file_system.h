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

  // The process dies once `size_bytes` more are written: the write that crosses the border leaves
  // the part before it, and nothing changes on the disk any more. What still asks gets ABORTED.
  void CrashAfter(int64_t size_bytes);

  // Of the operations that change or sync something, counted from now on, the one of that number,
  // from 0, meets the fault, and so do all later ones; kOnce is an input/output error of that one
  // alone. A write leaves its first half.
  enum class Fault { kFull, kBroken, kCrash, kOnce };
  void FailAt(int64_t operation, Fault fault);

  // Since the last FailAt, or the start.
  int64_t operation_count() const;

  // No faults any more.
  void Repair();

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path,
                                                               bool append) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> OpenForBlocks(const std::string& path,
                                                           int64_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override;
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
  class Blocks;
  class Readable;

  enum class Kind { kTakesRoom, kOther, kRemoval };

  // What of a write reaches the disk, and how it ends.
  struct Admitted {
    int64_t size_bytes;
    absl::Status status;
  };
  Admitted AdmitWrite(const std::string& path, int64_t size_bytes);
  absl::Status Admit(const std::string& path, Kind kind);
  absl::Status CheckReads(const std::string& path) const;
  absl::Status Check(const std::string& path, Kind kind) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error that this operation alone meets.
  absl::Status CountOperation(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr int64_t kUnlimited = -1;
  static constexpr int64_t kNever = -1;

  FileSystem* const base_;
  mutable Mutex mutex_;
  int64_t left_bytes_ ABSL_GUARDED_BY(mutex_) = kUnlimited;
  bool announced_ ABSL_GUARDED_BY(mutex_) = true;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool crashes_when_full_ ABSL_GUARDED_BY(mutex_) = false;
  bool crashed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t fails_at_ ABSL_GUARDED_BY(mutex_) = kNever;
  Fault fault_ ABSL_GUARDED_BY(mutex_) = Fault::kFull;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_FAULTY_FILE_SYSTEM_H_
