#include "runtime/device/slab_launcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// What one thread copies at a time; less than two of them are not worth waking any.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// One mark a slab, and one for what a copy waits for.
constexpr int kSourceMark = SlabLane::kSlabCount;
static_assert(kSourceMark < Launcher::kMarkCount);

}  // namespace

absl::StatusOr<std::unique_ptr<SlabLane>> SlabLane::Create(Device& device, int64_t slab_bytes,
                                                           int threads) {
  MT_CHECK(slab_bytes > 0);
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> slabs,
                      device.AllocateHost(kSlabCount * slab_bytes));
  return std::unique_ptr<SlabLane>(new SlabLane(std::move(slabs), slab_bytes, threads));
}

void SlabLane::Copy(void* to, const void* from, int64_t size_bytes) {
  if (size_bytes < 2 * kPieceBytes) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  pool_.Run((size_bytes + kPieceBytes - 1) / kPieceBytes, [&](int64_t piece) {
    const int64_t first = piece * kPieceBytes;
    std::memcpy(target + first, source + first, std::min(kPieceBytes, size_bytes - first));
  });
}

void SlabLauncher::CopyToDevice(void* device, const void* host, int64_t size_bytes) {
  if (reaches_(host)) {
    launcher_.CopyToDevice(device, host, size_bytes);
    return;
  }
  launcher_.SetMark(kSourceMark);
  launcher_.AwaitMark(kSourceMark);  // now the host's memory is what the stream is to read
  int slab = 0;
  for (int64_t offset = 0; offset < size_bytes; offset += lane_.slab_bytes()) {
    const int64_t part_bytes = std::min(lane_.slab_bytes(), size_bytes - offset);
    launcher_.AwaitMark(slab);
    lane_.Copy(lane_.slab(slab), static_cast<const std::byte*>(host) + offset, part_bytes);
    launcher_.CopyToDevice(static_cast<std::byte*>(device) + offset, lane_.slab(slab), part_bytes);
    launcher_.SetMark(slab);
    slab = (slab + 1) % SlabLane::kSlabCount;
  }
}

void SlabLauncher::CopyToHost(void* host, const void* device, int64_t size_bytes) {
  if (reaches_(host)) {
    launcher_.CopyToHost(host, device, size_bytes);
    return;
  }
  const int64_t slab_bytes = lane_.slab_bytes();
  const int64_t count = (size_bytes + slab_bytes - 1) / slab_bytes;
  const auto part_bytes = [&](int64_t part) {
    return std::min(slab_bytes, size_bytes - part * slab_bytes);
  };
  // Part by part into the slabs, and each out of its slab just before that is used again.
  for (int64_t next = 0; next < count + SlabLane::kSlabCount; ++next) {
    const int slab = static_cast<int>(next % SlabLane::kSlabCount);
    const int64_t ready = next - SlabLane::kSlabCount;
    if (ready >= 0 && ready < count) {
      launcher_.AwaitMark(slab);
      lane_.Copy(static_cast<std::byte*>(host) + ready * slab_bytes, lane_.slab(slab),
                 part_bytes(ready));
    }
    if (next < count) {
      launcher_.CopyToHost(lane_.slab(slab),
                           static_cast<const std::byte*>(device) + next * slab_bytes,
                           part_bytes(next));
      launcher_.SetMark(slab);
    }
  }
}

}  // namespace megatrain
