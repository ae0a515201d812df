#include "server/models/model_files.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr char kTemplateFolder[] = "additional_chat_templates";

bool BelongsToModel(std::string_view name) {
  if (name.starts_with('.')) return false;
  for (const std::string_view prefix : {"LICENSE", "LICENCE", "NOTICE"}) {
    if (name.starts_with(prefix)) return true;
  }
  for (const std::string_view suffix :
       {".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);  // follows links
}

}  // namespace

absl::StatusOr<std::vector<NamedFile>> FindModelFiles(FileSystem& disk, const std::string& folder) {
  if (!disk.Exists(folder)) {
    return WithReason(absl::NotFoundError(absl::StrCat("there is no model folder at ", folder)),
                      "MODEL_NOT_USABLE", {{"path", folder}});
  }
  std::vector<NamedFile> files;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.ListFolder(folder));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (BelongsToModel(name) && IsFile(path)) files.push_back({name, path});
  }
  const std::string templates = absl::StrCat(folder, "/", kTemplateFolder);
  if (!disk.Exists(templates)) return files;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> template_names, disk.ListFolder(templates));
  for (const std::string& name : template_names) {
    const std::string path = absl::StrCat(templates, "/", name);
    if (name.ends_with(".jinja") && IsFile(path)) {
      files.push_back({absl::StrCat(kTemplateFolder, "/", name), path});
    }
  }
  return files;
}

absl::Status ResolveLinks(const AllowedPaths& allowed, std::vector<NamedFile>& files) {
  for (NamedFile& file : files) {
    MT_ASSIGN_OR_RETURN(file.path, allowed.Resolve(file.path));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TotalBytes(FileSystem& disk, const std::vector<NamedFile>& files) {
  int64_t total_bytes = 0;
  for (const NamedFile& file : files) {
    MT_ASSIGN_OR_RETURN(const int64_t size_bytes, disk.FileSize(file.path));
    total_bytes += size_bytes;
  }
  return total_bytes;
}

absl::StatusOr<ModelSummary> CheckModel(FileSystem& disk, const std::string& folder) {
  absl::StatusOr<ModelSummary> summary = CheckModelFolder(folder, disk);
  if (summary.ok() && !disk.Exists(folder + "/tokenizer.json")) {
    summary = absl::NotFoundError(
        absl::StrCat(folder, " has no tokenizer.json: save the model's tokenizer in that format"));
  }
  if (!summary.ok()) {
    return WithReason(summary.status(), "MODEL_NOT_USABLE", {{"path", folder}});
  }
  return summary;
}

absl::Status CheckRoom(FileSystem& disk, const std::string& folder, int64_t size_bytes) {
  MT_ASSIGN_OR_RETURN(const int64_t available_bytes, disk.AvailableBytes(folder));
  if (size_bytes <= available_bytes) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("the model has ", size_bytes, " bytes, the disk of ", folder,
                                     " has room for ", available_bytes, ": make room there")),
                    "DISK_FULL",
                    {{"size_bytes", std::to_string(size_bytes)},
                     {"available_bytes", std::to_string(available_bytes)},
                     {"folder", folder}});
}

}  // namespace megatrain
