#ifndef RUNTIME_SAFETENSORS_SAFETENSORS_FILE_H_
#define RUNTIME_SAFETENSORS_SAFETENSORS_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/safetensors/input_file.h"
#include "runtime/safetensors/safetensors_header.h"

namespace megatrain {

// Reads one safetensors file. Thread-safe. Every error names the file.
class SafetensorsFile {
 public:
  // Reads and checks the header, and that the file holds what it promises: DATA_LOSS with both
  // sizes when it is cut short, INVALID_ARGUMENT for what is no safetensors file.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  // Fills `buffer` with the tensor's bytes from `offset_bytes` of it on; the range is inside it.
  // Meant for one pass: keeps nothing in the page cache.
  absl::Status Read(const TensorEntry& tensor, int64_t offset_bytes, std::span<char> buffer) const;

  const std::string& path() const { return file_->path(); }
  const SafetensorsHeader& header() const { return header_; }

 private:
  explicit SafetensorsFile(std::unique_ptr<InputFile> file) : file_(std::move(file)) {}

  absl::Status ReadHeader();

  const std::unique_ptr<InputFile> file_;
  SafetensorsHeader header_;
  int64_t data_offset_bytes_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_SAFETENSORS_SAFETENSORS_FILE_H_
