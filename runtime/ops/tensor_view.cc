#include "runtime/ops/tensor_view.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/ops/workspace.h"

namespace megatrain {

at::Tensor View(void* data, c10::IntArrayRef shape, c10::ScalarType dtype) {
  MT_CHECK(reinterpret_cast<uintptr_t>(data) % WorkspaceHeap::kAlignmentBytes == 0);
  return at::from_blob(data, shape, at::TensorOptions(dtype));
}

at::Tensor View(const void* data, c10::IntArrayRef shape, c10::ScalarType dtype) {
  return View(const_cast<void*>(data), shape, dtype);
}

at::Tensor Uninitialized(c10::IntArrayRef shape, c10::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions(dtype));
}

at::Tensor AsFloat(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

}  // namespace megatrain
