#include "server/files/folder_copy.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/files/sha256.h"

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

absl::Status CopyFile(FileSystem& disk, const NamedFile& file, const std::string& to,
                      const std::atomic<bool>& stop, Describer& describer) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> copy,
                      disk.OpenForWriting(to, /*append=*/false));
  Sha256 hash;
  int64_t size_bytes = 0;
  MT_RETURN_IF_ERROR(ReadPieces(file.path, [&](std::string_view piece) {
    if (stop) return absl::CancelledError("the server stops");
    hash.Update(piece);
    size_bytes += static_cast<int64_t>(piece.size());
    return copy->Append(piece);
  }));
  MT_RETURN_IF_ERROR(copy->Sync());
  MT_RETURN_IF_ERROR(copy->Close());
  describer.Add(file.name, size_bytes, hash.HexDigest());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FolderFacts> CopyFiles(FileSystem& disk, const std::vector<NamedFile>& files,
                                      const std::string& to, const std::atomic<bool>& stop) {
  std::vector<NamedFile> sorted = files;
  std::sort(sorted.begin(), sorted.end(),
            [](const NamedFile& a, const NamedFile& b) { return a.name < b.name; });
  MT_RETURN_IF_ERROR(disk.MakeFolders(to));
  Describer describer;
  for (const NamedFile& file : sorted) {
    MT_RETURN_IF_ERROR(CopyFile(disk, file, absl::StrCat(to, "/", file.name), stop, describer));
  }
  MT_RETURN_IF_ERROR(disk.SyncFolder(to));
  return describer.Finish();
}

absl::StatusOr<FolderFacts> DescribeFolder(FileSystem& disk, const std::string& folder) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.ListFolder(folder));
  Describer describer;
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    MT_ASSIGN_OR_RETURN(const int64_t size_bytes, disk.FileSize(path));
    MT_ASSIGN_OR_RETURN(const std::string sha256, HashFile(path));
    describer.Add(name, size_bytes, sha256);
  }
  return describer.Finish();
}

}  // namespace megatrain
