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

// One mark a slab, and one for what a Work waits for.
constexpr int kSourceMark = SlabLane::kSlabCount;
static_assert(kSourceMark < Launcher::kMarkCount);

}  // namespace

absl::StatusOr<std::unique_ptr<SlabLane>> SlabLane::Create(Device& device, int64_t slab_bytes,
                                                           int threads) {
  MT_CHECK(slab_bytes > 0);
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> slabs,
                      device.AllocateHost(kSlabCount * slab_bytes));
  return std::unique_ptr<SlabLane>(
      new SlabLane(std::move(slabs), slab_bytes, std::min(threads, kMostThreads)));
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
  FinishCopies();  // they may go where this one comes from
  AwaitSource();
  for (int64_t offset = 0; offset < size_bytes; offset += lane_.slab_bytes()) {
    const int64_t part_bytes = std::min(lane_.slab_bytes(), size_bytes - offset);
    const int slab = TakeSlab();
    lane_.Copy(lane_.slab(slab), static_cast<const std::byte*>(host) + offset, part_bytes);
    launcher_.CopyToDevice(static_cast<std::byte*>(device) + offset, lane_.slab(slab), part_bytes);
    launcher_.SetMark(slab);
  }
}

void SlabLauncher::CopyToHost(void* host, const void* device, int64_t size_bytes) {
  if (reaches_(host)) {
    launcher_.CopyToHost(host, device, size_bytes);
    return;
  }
  for (int64_t offset = 0; offset < size_bytes; offset += lane_.slab_bytes()) {
    const int64_t part_bytes = std::min(lane_.slab_bytes(), size_bytes - offset);
    const int slab = TakeSlab();
    launcher_.CopyToHost(lane_.slab(slab), static_cast<const std::byte*>(device) + offset,
                         part_bytes);
    launcher_.SetMark(slab);
    leaving_[slab] = {static_cast<std::byte*>(host) + offset, part_bytes};
    ++leaving_count_;
  }
}

void SlabLauncher::FinishCopies() {
  while (leaving_count_ > 0) {
    EmptyOldest();
  }
}

// What was in it has crossed, and is where it was to go.
int SlabLauncher::TakeSlab() {
  const int slab = lane_.next();
  if (leaving_count_ == SlabLane::kSlabCount) {
    EmptyOldest();
  }
  launcher_.AwaitMark(slab);
  lane_.Take();
  return slab;
}

void SlabLauncher::EmptyOldest() {
  const int slab = (lane_.next() + SlabLane::kSlabCount - leaving_count_) % SlabLane::kSlabCount;
  launcher_.AwaitMark(slab);
  lane_.Copy(leaving_[slab].host, lane_.slab(slab), leaving_[slab].size_bytes);
  --leaving_count_;
}

// Waits come before a Work, none within it: once it has begun, nothing more is waited for.
void SlabLauncher::AwaitSource() {
  if (!source_is_there_) {
    launcher_.SetMark(kSourceMark);
    launcher_.AwaitMark(kSourceMark);
    source_is_there_ = true;
  }
}

}  // namespace megatrain
