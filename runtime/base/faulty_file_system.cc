#include "runtime/base/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::Status Full(const std::string& path) {
  return absl::ErrnoToStatus(ENOSPC, absl::StrCat("cannot write ", path));
}

absl::Status Broken(const std::string& path) {
  return absl::ErrnoToStatus(EIO, absl::StrCat("cannot use ", path));
}

absl::Status Crashed(const std::string& path) {
  return absl::AbortedError(absl::StrCat("cannot use ", path, ": this process has died"));
}

}  // namespace

class FaultyFileSystem::File final : public WritableFile {
 public:
  File(FaultyFileSystem* disk, std::string path, std::unique_ptr<WritableFile> base)
      : disk_(disk), path_(std::move(path)), base_(std::move(base)) {}

  absl::Status Append(std::string_view data) override {
    const Admitted admitted = disk_->AdmitWrite(path_, static_cast<int64_t>(data.size()));
    MT_RETURN_IF_ERROR(base_->Append(data.substr(0, static_cast<size_t>(admitted.size_bytes))));
    return admitted.status;
  }

  absl::Status Sync() override {
    MT_RETURN_IF_ERROR(disk_->Admit(path_, Kind::kOther));
    return base_->Sync();
  }

  absl::Status Close() override { return base_->Close(); }

 private:
  FaultyFileSystem* const disk_;
  const std::string path_;
  const std::unique_ptr<WritableFile> base_;
};

class FaultyFileSystem::Blocks final : public BlockFile {
 public:
  Blocks(FaultyFileSystem* disk, std::string path, std::unique_ptr<BlockFile> base)
      : disk_(disk), path_(std::move(path)), base_(std::move(base)) {}

  absl::Status WriteAt(int64_t offset_bytes, std::span<const char> data) override {
    const Admitted admitted = disk_->AdmitWrite(path_, static_cast<int64_t>(data.size()));
    MT_RETURN_IF_ERROR(base_->WriteAt(offset_bytes, data.first(admitted.size_bytes)));
    return admitted.status;
  }

  bool direct() const override { return base_->direct(); }

  absl::Status Sync() override {
    MT_RETURN_IF_ERROR(disk_->Admit(path_, Kind::kOther));
    return base_->Sync();
  }

 private:
  FaultyFileSystem* const disk_;
  const std::string path_;
  const std::unique_ptr<BlockFile> base_;
};

class FaultyFileSystem::Readable final : public ReadableFile {
 public:
  Readable(FaultyFileSystem* disk, std::string path, std::unique_ptr<ReadableFile> base)
      : disk_(disk), path_(std::move(path)), base_(std::move(base)) {}

  int64_t size_bytes() const override { return base_->size_bytes(); }

  absl::Status ReadAt(int64_t offset_bytes, std::span<char> buffer) const override {
    MT_RETURN_IF_ERROR(disk_->CheckReads(path_));
    return base_->ReadAt(offset_bytes, buffer);
  }

 private:
  FaultyFileSystem* const disk_;
  const std::string path_;
  const std::unique_ptr<ReadableFile> base_;
};

void FaultyFileSystem::FillAfter(int64_t size_bytes, bool announced) {
  MutexLock lock(&mutex_);
  announced_ = announced;
  left_bytes_ = size_bytes;
}

void FaultyFileSystem::Break() {
  MutexLock lock(&mutex_);
  broken_ = true;
}

void FaultyFileSystem::CrashAfter(int64_t size_bytes) {
  MutexLock lock(&mutex_);
  announced_ = false;
  left_bytes_ = size_bytes;
  crashes_when_full_ = true;
}

void FaultyFileSystem::FailAt(int64_t operation, Fault fault) {
  MutexLock lock(&mutex_);
  operations_ = 0;
  fails_at_ = operation;
  fault_ = fault;
}

int64_t FaultyFileSystem::operation_count() const {
  MutexLock lock(&mutex_);
  return operations_;
}

void FaultyFileSystem::Repair() {
  MutexLock lock(&mutex_);
  left_bytes_ = kUnlimited;
  fails_at_ = kNever;
  broken_ = false;
  crashes_when_full_ = false;
  crashed_ = false;
}

FaultyFileSystem::Admitted FaultyFileSystem::AdmitWrite(const std::string& path,
                                                        int64_t size_bytes) {
  MutexLock lock(&mutex_);
  if (const absl::Status status = Check(path, Kind::kOther); !status.ok()) {
    return {0, status};
  }
  if (const absl::Status status = CountOperation(path); !status.ok()) {
    return {size_bytes / 2, status};
  }
  if (const absl::Status status = Check(path, Kind::kTakesRoom); !status.ok() && size_bytes > 0) {
    return {fails_at_ == operations_ - 1 ? size_bytes / 2 : 0, status};
  }
  if (left_bytes_ == kUnlimited) {
    return {size_bytes, absl::OkStatus()};
  }
  const int64_t taken = std::min(size_bytes, left_bytes_);
  left_bytes_ -= taken;
  crashed_ = crashed_ || (taken < size_bytes && crashes_when_full_);
  return {taken, taken == size_bytes ? absl::OkStatus() : crashed_ ? Crashed(path) : Full(path)};
}

absl::Status FaultyFileSystem::Admit(const std::string& path, Kind kind) {
  MutexLock lock(&mutex_);
  MT_RETURN_IF_ERROR(CountOperation(path));
  return Check(path, kind);
}

absl::Status FaultyFileSystem::CheckReads(const std::string& path) const {
  MutexLock lock(&mutex_);
  return Check(path, Kind::kOther);
}

absl::Status FaultyFileSystem::Check(const std::string& path, Kind kind) const {
  if (crashed_) {
    return Crashed(path);
  }
  if (broken_ && kind != Kind::kRemoval) {
    return Broken(path);
  }
  return left_bytes_ == 0 && kind == Kind::kTakesRoom ? Full(path) : absl::OkStatus();
}

absl::Status FaultyFileSystem::CountOperation(const std::string& path) {
  if (operations_++ != fails_at_) {
    return absl::OkStatus();
  }
  left_bytes_ = fault_ == Fault::kFull ? 0 : left_bytes_;
  broken_ = broken_ || fault_ == Fault::kBroken;
  crashed_ = crashed_ || fault_ == Fault::kCrash;
  return fault_ == Fault::kOnce ? Broken(path) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::OpenForWriting(
    const std::string& path, bool append) {
  MT_RETURN_IF_ERROR(Admit(path, base_->Exists(path) ? Kind::kOther : Kind::kTakesRoom));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->OpenForWriting(path, append));
  return std::make_unique<File>(this, path, std::move(file));
}

absl::StatusOr<std::unique_ptr<BlockFile>> FaultyFileSystem::OpenForBlocks(const std::string& path,
                                                                           int64_t size_bytes) {
  MT_RETURN_IF_ERROR(Admit(path, base_->Exists(path) ? Kind::kOther : Kind::kTakesRoom));
  {
    MutexLock lock(&mutex_);
    if (announced_ && left_bytes_ != kUnlimited && size_bytes > left_bytes_) {
      return Full(path);
    }
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file, base_->OpenForBlocks(path, size_bytes));
  return std::make_unique<Blocks>(this, path, std::move(file));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultyFileSystem::OpenForReading(
    const std::string& path) {
  MT_RETURN_IF_ERROR(CheckReads(path));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, base_->OpenForReading(path));
  return std::make_unique<Readable>(this, path, std::move(file));
}

absl::StatusOr<std::string> FaultyFileSystem::ReadFile(const std::string& path,
                                                       int64_t limit_bytes) {
  MT_RETURN_IF_ERROR(CheckReads(path));
  return base_->ReadFile(path, limit_bytes);
}

absl::StatusOr<int64_t> FaultyFileSystem::FileSize(const std::string& path) {
  return base_->FileSize(path);
}

bool FaultyFileSystem::Exists(const std::string& path) { return base_->Exists(path); }

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::ListFolder(const std::string& path) {
  return base_->ListFolder(path);
}

absl::Status FaultyFileSystem::MakeFolders(const std::string& path) {
  if (!base_->Exists(path)) MT_RETURN_IF_ERROR(Admit(path, Kind::kTakesRoom));
  return base_->MakeFolders(path);
}

absl::Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  MT_RETURN_IF_ERROR(Admit(from, Kind::kOther));
  return base_->Rename(from, to);
}

absl::Status FaultyFileSystem::Link(const std::string& from, const std::string& to) {
  MT_RETURN_IF_ERROR(Admit(to, Kind::kTakesRoom));
  return base_->Link(from, to);
}

absl::Status FaultyFileSystem::Truncate(const std::string& path, int64_t size_bytes) {
  MT_RETURN_IF_ERROR(Admit(path, Kind::kOther));
  return base_->Truncate(path, size_bytes);
}

absl::Status FaultyFileSystem::SyncFolder(const std::string& path) {
  MT_RETURN_IF_ERROR(Admit(path, Kind::kOther));
  return base_->SyncFolder(path);
}

absl::Status FaultyFileSystem::RemoveTree(const std::string& path) {
  MT_RETURN_IF_ERROR(Admit(path, Kind::kRemoval));
  return base_->RemoveTree(path);
}

absl::StatusOr<int64_t> FaultyFileSystem::AvailableBytes(const std::string& path) {
  MT_ASSIGN_OR_RETURN(const int64_t base_bytes, base_->AvailableBytes(path));
  MutexLock lock(&mutex_);
  return left_bytes_ == kUnlimited || !announced_ ? base_bytes : std::min(base_bytes, left_bytes_);
}

}  // namespace megatrain
