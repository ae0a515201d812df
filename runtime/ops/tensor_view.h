// Names plain memory as LibTorch tensors, without copies.
//
// Letters of shapes in this package: T tokens of a micro-batch, S tokens of one document, D hidden
// size, F MLP width, H heads, K key/value heads, G = H / K, C head dimension, R = C / 2, V
// vocabulary rows, N rows with a loss.

#ifndef RUNTIME_OPS_TENSOR_VIEW_H_
#define RUNTIME_OPS_TENSOR_VIEW_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

namespace megatrain {

// A contiguous row-major tensor over `data`, which must outlive it and be 64-byte aligned: the
// matrix products choose their way by alignment, and with it the order of their sums.
at::Tensor View(void* data, c10::IntArrayRef shape, c10::ScalarType dtype);

// The same for what is only read.
at::Tensor View(const void* data, c10::IntArrayRef shape, c10::ScalarType dtype);

// A new tensor whose values are not initialized.
at::Tensor Uninitialized(c10::IntArrayRef shape, c10::ScalarType dtype);

// `tensor` itself when it is fp32 already, else a copy in fp32.
at::Tensor AsFloat(const at::Tensor& tensor);

}  // namespace megatrain

#endif  // RUNTIME_OPS_TENSOR_VIEW_H_
