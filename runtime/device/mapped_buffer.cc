#include "runtime/device/mapped_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

class MappedBuffer final : public DeviceBuffer {
 public:
  MappedBuffer(void* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  ~MappedBuffer() override { munmap(data_, size_bytes_); }

  std::byte* data() override { return static_cast<std::byte*>(data_); }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  void* const data_;
  const int64_t size_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBuffer>> MapBuffer(int64_t size_bytes) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    /*fd=*/-1, /*offset=*/0);
  if (data == MAP_FAILED) {
    const std::string what = absl::StrCat("cannot map ", size_bytes, " bytes of device memory");
    return absl::ResourceExhaustedError(absl::ErrnoToStatus(errno, what).message());
  }
  return std::make_unique<MappedBuffer>(data, size_bytes);
}

}  // namespace megatrain
