// Where the weights of an export come from.

#ifndef RUNTIME_MODEL_IO_WEIGHT_SOURCE_H_
#define RUNTIME_MODEL_IO_WEIGHT_SOURCE_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "runtime/safetensors/tensor_dtype.h"

namespace megatrain {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Fills `bytes` with elements of a unit from `first_element` on, rounded to `dtype` as
  // EncodeElements does. Returns the index of the first that is not finite, or -1.
  virtual absl::StatusOr<int64_t> Encode(int unit, int64_t first_element, TensorDtype dtype,
                                         std::span<char> bytes) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_WEIGHT_SOURCE_H_
