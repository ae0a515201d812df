#include "runtime/model_io/copied_files.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/safetensors/input_file.h"

namespace megatrain {
namespace {

constexpr char kTemplateFolder[] = "additional_chat_templates";

bool BelongsToModel(std::string_view name) {
  if (name.starts_with('.') || name.ends_with(".index.json")) {
    return false;
  }
  for (std::string_view prefix : {"LICENSE", "LICENCE", "NOTICE"}) {
    if (name.starts_with(prefix)) {
      return true;
    }
  }
  // .model and .tiktoken are tokenizers; merges.txt and vocab.txt too.
  for (std::string_view suffix : {".json", ".jinja", ".txt", ".model", ".tiktoken"}) {
    if (name.ends_with(suffix)) {
      return true;
    }
  }
  return false;
}

absl::Status CopyFile(const std::string& from, const std::string& to, std::span<char> buffer,
                      FileSystem& file_system) {
  auto opened = InputFile::Open(from);
  if (absl::IsInvalidArgument(opened.status())) {
    return absl::OkStatus();  // a folder of that name
  }
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> source, std::move(opened));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> target,
                      file_system.OpenForWriting(to, /*append=*/false));
  for (int64_t offset = 0; offset < source->size_bytes();) {
    const int64_t left = source->size_bytes() - offset;
    const std::span<char> piece = buffer.first(std::min<int64_t>(left, buffer.size()));
    MT_RETURN_IF_ERROR(source->Read(offset, piece));
    MT_RETURN_IF_ERROR(target->Append({piece.data(), piece.size()}));
    offset += static_cast<int64_t>(piece.size());
  }
  MT_RETURN_IF_ERROR(target->Sync());
  return target->Close();
}

}  // namespace

absl::Status CopyModelFiles(const std::string& from, const std::string& to, std::span<char> buffer,
                            FileSystem& file_system) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, file_system.ListFolder(from));
  for (const std::string& name : names) {
    if (BelongsToModel(name)) {
      MT_RETURN_IF_ERROR(CopyFile(absl::StrCat(from, "/", name), absl::StrCat(to, "/", name),
                                  buffer, file_system));
    }
  }
  const std::string templates = absl::StrCat("/", kTemplateFolder);
  if (!file_system.Exists(from + templates)) {
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> more,
                      file_system.ListFolder(from + templates));
  MT_RETURN_IF_ERROR(file_system.MakeFolders(to + templates));
  for (const std::string& name : more) {
    if (name.ends_with(".jinja")) {
      MT_RETURN_IF_ERROR(CopyFile(absl::StrCat(from, templates, "/", name),
                                  absl::StrCat(to, templates, "/", name), buffer, file_system));
    }
  }
  return file_system.SyncFolder(to + templates);
}

}  // namespace megatrain
