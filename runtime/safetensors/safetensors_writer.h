#ifndef RUNTIME_SAFETENSORS_SAFETENSORS_WRITER_H_
#define RUNTIME_SAFETENSORS_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/safetensors/safetensors_header.h"

namespace megatrain {

// Writes one safetensors file from front to back, holding no tensor. Not thread-safe. After an
// error the file is incomplete, and removing it is the caller's.
class SafetensorsWriter {
 public:
  // Writes the header for `header`'s tensors in their order, with `format` "pt" in the metadata
  // as transformers requires.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                                   SafetensorsHeader header,
                                                                   FileSystem& file_system);

  // The next bytes of the data: tensor after tensor, each in as many pieces as the caller likes.
  absl::Status Append(std::string_view bytes);

  // Returns when the file is complete on the disk. Requires that every tensor was written.
  absl::Status Finish();

 private:
  SafetensorsWriter(std::unique_ptr<WritableFile> file, int64_t data_bytes)
      : file_(std::move(file)), missing_bytes_(data_bytes) {}

  const std::unique_ptr<WritableFile> file_;
  int64_t missing_bytes_;
};

}  // namespace megatrain

#endif  // RUNTIME_SAFETENSORS_SAFETENSORS_WRITER_H_
