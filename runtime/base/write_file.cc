#include "runtime/base/write_file.h"

#include <filesystem>
#include <memory>

#include "runtime/base/status_macros.h"

namespace megatrain {

std::string FolderOfFile(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().parent_path().string();
}

absl::Status WriteFileDurably(FileSystem& files, const std::string& path,
                              std::string_view content) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      files.OpenForWriting(path, /*append=*/false));
  MT_RETURN_IF_ERROR(file->Append(content));
  MT_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::Status ReplaceFile(FileSystem& files, const std::string& path, std::string_view content) {
  const std::string partial = path + ".partial";
  MT_RETURN_IF_ERROR(WriteFileDurably(files, partial, content));
  MT_RETURN_IF_ERROR(files.Rename(partial, path));
  return files.SyncFolder(FolderOfFile(path));
}

}  // namespace megatrain
