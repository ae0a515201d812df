#include "server/files/folder_copy.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status_macros.h"
#include "server/files/hash_file.h"

namespace megatrain {
namespace {

// Sums up files that come in the order of their names.
class Describer {
 public:
  void Add(const std::string& name, int64_t size_bytes, const std::string& sha256) {
    size_bytes_ += size_bytes;
    hash_.Update(absl::StrCat(name, "\n", size_bytes, "\n", sha256, "\n"));
  }
  FolderFacts Finish() { return {size_bytes_, hash_.HexDigest()}; }

 private:
  int64_t size_bytes_ = 0;
  Sha256 hash_;
};

// How far a copy of several files is.
struct CopyProgress {
  const ByteProgress& progress;
  int64_t done_bytes = 0;
  int64_t all_bytes = 0;
};

absl::Status CopyFile(FileSystem& disk, const NamedFile& file, const std::string& to,
                      CopyProgress& progress, Describer& describer) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> copy,
                      disk.OpenForWriting(to, /*append=*/false));
  Sha256 hash;
  int64_t size_bytes = 0;
  MT_RETURN_IF_ERROR(ReadPieces(file.path, [&](std::string_view piece) {
    MT_RETURN_IF_ERROR(TellProgress(progress.progress, progress.done_bytes, progress.all_bytes));
    hash.Update(piece);
    size_bytes += static_cast<int64_t>(piece.size());
    progress.done_bytes += static_cast<int64_t>(piece.size());
    return copy->Append(piece);
  }));
  MT_RETURN_IF_ERROR(copy->Sync());
  MT_RETURN_IF_ERROR(copy->Close());
  describer.Add(file.name, size_bytes, hash.HexDigest());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FolderFacts> CopyFiles(FileSystem& disk, const std::vector<NamedFile>& files,
                                      const std::string& to, const ByteProgress& progress) {
  CopyProgress copied{.progress = progress};
  std::map<std::string, std::string> sorted;
  std::set<std::string> folders = {to};
  for (const NamedFile& file : files) {
    sorted.emplace(file.name, file.path);
    MT_ASSIGN_OR_RETURN(const int64_t size_bytes, disk.FileSize(file.path));
    copied.all_bytes += size_bytes;
    for (size_t slash = file.name.find('/'); slash != std::string::npos;
         slash = file.name.find('/', slash + 1)) {
      folders.insert(absl::StrCat(to, "/", file.name.substr(0, slash)));
    }
  }
  for (const std::string& folder : folders) {
    MT_RETURN_IF_ERROR(disk.MakeFolders(folder));
  }
  Describer describer;
  for (const auto& [name, path] : sorted) {
    MT_RETURN_IF_ERROR(
        CopyFile(disk, {name, path}, absl::StrCat(to, "/", name), copied, describer));
  }
  for (const std::string& folder : folders) {
    MT_RETURN_IF_ERROR(disk.SyncFolder(folder));
  }
  return describer.Finish();
}

absl::StatusOr<std::vector<NamedFile>> ListFiles(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<NamedFile> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!entry->is_symlink(error) && entry->is_regular_file(error)) {
      const std::string path = entry->path().string();
      files.push_back({path.substr(folder.size() + 1), path});
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  }
  std::sort(files.begin(), files.end(),
            [](const NamedFile& a, const NamedFile& b) { return a.name < b.name; });
  return files;
}

absl::StatusOr<FolderFacts> DescribeFolder(FileSystem& disk, const std::string& folder) {
  MT_ASSIGN_OR_RETURN(const std::vector<NamedFile> files, ListFiles(folder));
  Describer describer;
  for (const NamedFile& file : files) {
    MT_ASSIGN_OR_RETURN(const int64_t size_bytes, disk.FileSize(file.path));
    MT_ASSIGN_OR_RETURN(const std::string sha256, HashFile(file.path));
    describer.Add(file.name, size_bytes, sha256);
  }
  return describer.Finish();
}

}  // namespace megatrain
