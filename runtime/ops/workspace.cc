#include "runtime/ops/workspace.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

thread_local WorkspaceHeap* active_heap = nullptr;

// Hands out the active heap of the calling thread, and ordinary memory where there is none: so
// threads inside LibTorch's own loops and everything outside RunInWorkspace stay as they were.
class WorkspaceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    if (active_heap == nullptr) {
      return c10::GetDefaultCPUAllocator()->allocate(size_bytes);
    }
    if (size_bytes == 0) {
      return {nullptr, c10::Device(c10::DeviceType::CPU)};
    }
    void* piece = active_heap->Take(static_cast<int64_t>(size_bytes));
    TORCH_CHECK(piece != nullptr, "workspace exhausted: ", size_bytes, " bytes wanted while ",
                active_heap->used_bytes(), " are in use");
    return {piece, piece, &Release, c10::Device(c10::DeviceType::CPU)};
  }

  // For what LibTorch took through raw_allocate, from either place.
  c10::DeleterFnPtr raw_deleter() const override { return &ReleaseRaw; }

  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }

 private:
  static void Release(void* piece) {
    MT_CHECK(active_heap != nullptr);  // a tensor outlived its RunInWorkspace or left its thread
    active_heap->Return(piece);
  }

  static void ReleaseRaw(void* piece) {
    if (active_heap != nullptr && active_heap->Contains(piece)) {
      active_heap->Return(piece);
    } else {
      c10::GetDefaultCPUAllocator()->raw_deallocate(piece);
    }
  }
};

void InstallAllocator() {
  constexpr uint8_t kPriority = 100;  // above LibTorch's own, which is 0
  [[maybe_unused]] static const bool installed = [] {
    static WorkspaceAllocator* const allocator = new WorkspaceAllocator;
    c10::SetCPUAllocator(allocator, kPriority);
    return true;
  }();
}

// Makes a heap the calling thread's for as long as this lives.
class ActiveHeap {
 public:
  explicit ActiveHeap(WorkspaceHeap* heap) {
    MT_CHECK(active_heap == nullptr);
    active_heap = heap;
  }
  ~ActiveHeap() { active_heap = nullptr; }

  ActiveHeap(const ActiveHeap&) = delete;
  ActiveHeap& operator=(const ActiveHeap&) = delete;
};

absl::Status RunCatching(absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
}

}  // namespace

WorkspaceHeap::WorkspaceHeap(void* data, int64_t size_bytes)
    : data_(static_cast<char*>(data)), size_bytes_(size_bytes & ~(kAlignmentBytes - 1)) {
  MT_CHECK(reinterpret_cast<uintptr_t>(data) % kAlignmentBytes == 0);
  MT_CHECK(size_bytes >= 0);
  if (size_bytes_ > 0) {
    free_[0] = size_bytes_;
  }
}

void* WorkspaceHeap::Take(int64_t size_bytes) {
  MT_CHECK(size_bytes > 0);
  if (size_bytes > size_bytes_) {
    return nullptr;
  }
  const int64_t wanted = (size_bytes + kAlignmentBytes - 1) & ~(kAlignmentBytes - 1);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second >= wanted && (best == free_.end() || it->second < best->second)) {
      best = it;
    }
  }
  if (best == free_.end()) {
    return nullptr;
  }
  const auto [offset, available] = *best;
  free_.erase(best);
  if (available > wanted) {
    free_[offset + wanted] = available - wanted;
  }
  taken_[offset] = wanted;
  used_bytes_ += wanted;
  return data_ + offset;
}

bool WorkspaceHeap::Contains(const void* pointer) const {
  const auto* byte = static_cast<const char*>(pointer);
  return std::greater_equal<>()(byte, data_) && std::less<>()(byte, data_ + size_bytes_);
}

void WorkspaceHeap::Return(void* piece) {
  const auto taken = taken_.find(static_cast<char*>(piece) - data_);
  MT_CHECK(taken != taken_.end());
  const auto [offset, bytes] = *taken;
  taken_.erase(taken);
  used_bytes_ -= bytes;
  auto here = free_.emplace(offset, bytes).first;
  if (const auto next = std::next(here); next != free_.end() && offset + bytes == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here != free_.begin()) {
    const auto previous = std::prev(here);
    if (previous->first + previous->second == offset) {
      previous->second += here->second;
      free_.erase(here);
    }
  }
}

absl::Status RunInWorkspace(void* data, int64_t size_bytes,
                            absl::FunctionRef<absl::Status()> body) {
  InstallAllocator();
  // Tells a thread how many others its products take. Before it is asked they take as many as there
  // are processors, and have other bits.
  at::get_num_threads();
  const c10::InferenceMode no_autograd;
  WorkspaceHeap heap(data, size_bytes);
  const ActiveHeap active(&heap);
  absl::Status status = RunCatching(body);
  if (status.ok() && heap.used_bytes() != 0) {
    return absl::InternalError(
        absl::StrCat("a tensor of ", heap.used_bytes(), " bytes was left behind in the workspace"));
  }
  return status;
}

}  // namespace megatrain
