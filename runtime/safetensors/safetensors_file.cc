#include "runtime/safetensors/safetensors_file.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kLengthBytes = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<InputFile> input, InputFile::Open(path));
  auto file = std::unique_ptr<SafetensorsFile>(new SafetensorsFile(std::move(input)));
  MT_RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

absl::Status SafetensorsFile::ReadHeader() {
  const int64_t file_bytes = file_->size_bytes();
  std::array<char, kLengthBytes> length_bytes;
  if (file_bytes < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat(path(), ": ", file_bytes, " bytes are no safetensors file; is it cut short?"));
  }
  MT_RETURN_IF_ERROR(file_->Read(0, length_bytes));
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(length_bytes[i]);
  }
  if (length > uint64_t{kMaxSafetensorsHeaderBytes}) {
    return absl::InvalidArgumentError(
        absl::StrCat(path(), ": is no safetensors file, or its header of ", length,
                     " bytes is larger than the limit of ", kMaxSafetensorsHeaderBytes));
  }
  data_offset_bytes_ = kLengthBytes + static_cast<int64_t>(length);
  if (data_offset_bytes_ > file_bytes) {
    return absl::DataLossError(absl::StrCat(path(),
                                            ": is cut short: the header alone ends at byte ",
                                            data_offset_bytes_, ", the file has ", file_bytes));
  }
  std::string text(length, '\0');
  MT_RETURN_IF_ERROR(file_->Read(kLengthBytes, text));
  auto header = ParseSafetensorsHeader(text);
  if (!header.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path(), ": ", header.status().message()));
  }
  header_ = *std::move(header);
  const int64_t available = file_bytes - data_offset_bytes_;
  const int64_t expected = header_.DataBytes();
  if (available < expected) {
    // Unsigned: a hostile header may promise nearly 2^63 bytes.
    const uint64_t whole = static_cast<uint64_t>(data_offset_bytes_) + expected;
    return absl::DataLossError(absl::StrCat(path(), ": is cut short: ", whole,
                                            " bytes expected, the file has ", file_bytes));
  }
  if (available > expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(path(), ": has ", available - expected, " bytes after its last tensor"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::Read(const TensorEntry& tensor, int64_t offset_bytes,
                                   std::span<char> buffer) const {
  MT_CHECK(offset_bytes >= 0);
  MT_CHECK(offset_bytes + static_cast<int64_t>(buffer.size()) <= tensor.size_bytes);
  absl::Status status =
      file_->Read(data_offset_bytes_ + tensor.offset_bytes + offset_bytes, buffer);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), " (tensor \"", tensor.name, "\")"));
  }
  return status;
}

}  // namespace megatrain
