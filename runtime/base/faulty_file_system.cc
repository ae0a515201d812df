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

}  // namespace

class FaultyFileSystem::File final : public WritableFile {
 public:
  File(FaultyFileSystem* disk, std::string path, std::unique_ptr<WritableFile> base)
      : disk_(disk), path_(std::move(path)), base_(std::move(base)) {}

  absl::Status Append(std::string_view data) override {
    MT_RETURN_IF_ERROR(disk_->CheckWorks(path_));
    const int64_t taken = disk_->TakeBytes(static_cast<int64_t>(data.size()));
    MT_RETURN_IF_ERROR(base_->Append(data.substr(0, static_cast<size_t>(taken))));
    return taken == static_cast<int64_t>(data.size()) ? absl::OkStatus() : Full(path_);
  }

  absl::Status Sync() override {
    MT_RETURN_IF_ERROR(disk_->CheckWorks(path_));
    return base_->Sync();
  }

  absl::Status Close() override { return base_->Close(); }

 private:
  FaultyFileSystem* const disk_;
  const std::string path_;
  const std::unique_ptr<WritableFile> base_;
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

void FaultyFileSystem::Repair() {
  MutexLock lock(&mutex_);
  left_bytes_ = kUnlimited;
  broken_ = false;
}

int64_t FaultyFileSystem::TakeBytes(int64_t wanted_bytes) {
  MutexLock lock(&mutex_);
  if (left_bytes_ == kUnlimited) return wanted_bytes;
  const int64_t taken = std::min(wanted_bytes, left_bytes_);
  left_bytes_ -= taken;
  return taken;
}

absl::Status FaultyFileSystem::CheckWorks(const std::string& path) const {
  MutexLock lock(&mutex_);
  if (!broken_) return absl::OkStatus();
  return absl::ErrnoToStatus(EIO, absl::StrCat("cannot use ", path));
}

absl::Status FaultyFileSystem::CheckHasSpace(const std::string& path) const {
  MT_RETURN_IF_ERROR(CheckWorks(path));
  MutexLock lock(&mutex_);
  return left_bytes_ == 0 ? Full(path) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::OpenForWriting(
    const std::string& path, bool append) {
  MT_RETURN_IF_ERROR(CheckWorks(path));
  if (!base_->Exists(path)) MT_RETURN_IF_ERROR(CheckHasSpace(path));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->OpenForWriting(path, append));
  return std::make_unique<File>(this, path, std::move(file));
}

absl::StatusOr<std::string> FaultyFileSystem::ReadFile(const std::string& path,
                                                       int64_t limit_bytes) {
  MT_RETURN_IF_ERROR(CheckWorks(path));
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
  if (!base_->Exists(path)) MT_RETURN_IF_ERROR(CheckHasSpace(path));
  return base_->MakeFolders(path);
}

absl::Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  MT_RETURN_IF_ERROR(CheckWorks(from));
  return base_->Rename(from, to);
}

absl::Status FaultyFileSystem::Link(const std::string& from, const std::string& to) {
  MT_RETURN_IF_ERROR(CheckHasSpace(to));
  return base_->Link(from, to);
}

absl::Status FaultyFileSystem::Truncate(const std::string& path, int64_t size_bytes) {
  MT_RETURN_IF_ERROR(CheckWorks(path));
  return base_->Truncate(path, size_bytes);
}

absl::Status FaultyFileSystem::SyncFolder(const std::string& path) {
  MT_RETURN_IF_ERROR(CheckWorks(path));
  return base_->SyncFolder(path);
}

absl::Status FaultyFileSystem::RemoveTree(const std::string& path) {
  return base_->RemoveTree(path);
}

absl::StatusOr<int64_t> FaultyFileSystem::AvailableBytes(const std::string& path) {
  MT_ASSIGN_OR_RETURN(const int64_t base_bytes, base_->AvailableBytes(path));
  MutexLock lock(&mutex_);
  return left_bytes_ == kUnlimited || !announced_ ? base_bytes : std::min(base_bytes, left_bytes_);
}

}  // namespace megatrain
