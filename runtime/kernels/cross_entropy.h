// Softmax cross entropy over the vocabulary, loss and gradient in one kernel.

#ifndef RUNTIME_KERNELS_CROSS_ENTROPY_H_
#define RUNTIME_KERNELS_CROSS_ENTROPY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

struct CrossEntropy {
  const float* logits;     // [rows, vocab], 16-byte aligned
  const int32_t* targets;  // [rows]
  float* losses;           // [rows]: log(sum(exp(logits))) - logits[target]
  void* gradient;  // [rows, vocab] in `dtype`: (softmax - onehot) scale; null for the loss alone;
                   // may take the place of `logits`, each row at the start of its own, up to
                   // kMaxVocabInPlace
  int64_t gradient_stride;  // elements from a row to the next
  float scale;
  int64_t rows;
  int64_t vocab;
  ComputeDtype dtype;
};

// A NaN or infinity among a row's logits makes its loss non-finite.
absl::Status LaunchCrossEntropy(const CrossEntropy& arguments, cudaStream_t stream);

// Writes the sum, in fp64 and in an order that depends on `count` alone, and the index of the
// first loss that is not finite. `result` is device memory.
absl::Status LaunchSumLosses(const float* losses, int64_t count, HeadResult* result,
                             cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_CROSS_ENTROPY_H_
