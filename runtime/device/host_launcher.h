#ifndef RUNTIME_DEVICE_HOST_LAUNCHER_H_
#define RUNTIME_DEVICE_HOST_LAUNCHER_H_

#include <cstring>

#include "runtime/device/device.h"

namespace megatrain {

// For devices whose memory is the host's: every call has done its work when it returns.
class HostLauncher final : public Launcher {
 public:
  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    std::memcpy(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    std::memcpy(host, device, size_bytes);
  }
  void Fill(void* device, uint8_t byte, int64_t size_bytes) override {
    std::memset(device, byte, size_bytes);
  }
  void SetMark(int /*mark*/) override {}
  void AwaitMark(int /*mark*/) override {}
  void* native_stream() override { return nullptr; }
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_HOST_LAUNCHER_H_
