// Puts LibTorch's CPU tensors into memory that the caller gives.

#ifndef RUNTIME_OPS_WORKSPACE_H_
#define RUNTIME_OPS_WORKSPACE_H_

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace megatrain {

// A best-fit heap in a fixed piece of memory: equal sequences of calls give equal addresses
// relative to its start. Not thread-safe. Owns no memory.
class WorkspaceHeap {
 public:
  static constexpr int64_t kAlignmentBytes = 64;

  // `data` is 64-byte aligned.
  WorkspaceHeap(void* data, int64_t size_bytes);

  // 64-byte aligned, not initialized; nullptr when no free piece is large enough.
  void* Take(int64_t size_bytes);

  // What Take returned, once.
  void Return(void* piece);

  // Whether it points into this heap's memory.
  bool Contains(const void* pointer) const;

  int64_t used_bytes() const { return used_bytes_; }

 private:
  char* const data_;
  const int64_t size_bytes_;
  int64_t used_bytes_ = 0;
  std::map<int64_t, int64_t> free_;   // offset -> bytes, neighbours joined
  std::map<int64_t, int64_t> taken_;  // offset -> bytes
};

// Runs `body` without autograd, every CPU tensor that this thread makes in it being a piece of the
// workspace (`data`, 64-byte aligned, `size_bytes`), and returns its status. Tensors made in `body`
// must be gone when it returns. INTERNAL when the workspace is too small, when a tensor is left
// over, and for whatever LibTorch throws. Calls do not nest; each thread has its own.
absl::Status RunInWorkspace(void* data, int64_t size_bytes, absl::FunctionRef<absl::Status()> body);

}  // namespace megatrain

#endif  // RUNTIME_OPS_WORKSPACE_H_
