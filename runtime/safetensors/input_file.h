#ifndef RUNTIME_SAFETENSORS_INPUT_FILE_H_
#define RUNTIME_SAFETENSORS_INPUT_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// A regular file that is read once, at any offset. Thread-safe. Takes its size when it is opened:
// one that shrinks later gives errors, never a signal.
class InputFile {
 public:
  // Follows links. NOT_FOUND for an absent path, INVALID_ARGUMENT for what is no regular file.
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path);

  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Fills `buffer` from `offset_bytes` on, and gives the page cache back what it took, so that
  // hundreds of gigabytes of weights push nothing else out. DATA_LOSS when the file ends before.
  absl::Status Read(int64_t offset_bytes, std::span<char> buffer) const;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  InputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  int64_t size_bytes_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_SAFETENSORS_INPUT_FILE_H_
