#include "runtime/safetensors/safetensors_writer.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, SafetensorsHeader header, FileSystem& file_system) {
  header.metadata["format"] = "pt";
  int64_t data_bytes = 0;
  for (const TensorEntry& tensor : header.tensors) {
    data_bytes += tensor.size_bytes;
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      file_system.OpenForWriting(path, /*append=*/false));
  MT_RETURN_IF_ERROR(file->Append(SerializeSafetensorsHeader(header)));
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(file), data_bytes));
}

absl::Status SafetensorsWriter::Append(std::string_view bytes) {
  missing_bytes_ -= static_cast<int64_t>(bytes.size());
  MT_CHECK(missing_bytes_ >= 0);
  return file_->Append(bytes);
}

absl::Status SafetensorsWriter::Finish() {
  MT_CHECK(missing_bytes_ == 0);
  MT_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace megatrain
