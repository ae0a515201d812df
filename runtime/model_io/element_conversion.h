#ifndef RUNTIME_MODEL_IO_ELEMENT_CONVERSION_H_
#define RUNTIME_MODEL_IO_ELEMENT_CONVERSION_H_

#include <cstdint>

#include "runtime/safetensors/tensor_dtype.h"

namespace megatrain {

// Exact: every IEEE half is a float.
float HalfToFloat(uint16_t half);

// To the nearest, ties to even; infinite from 65520 on.
uint16_t FloatToHalf(float value);

// Splits `count` elements of a file (F32, BF16 or F16, unaligned) into the master's two halves;
// exact. Returns the index of the first that is not finite, or -1.
int64_t DecodeElements(TensorDtype dtype, const char* bytes, int64_t count, uint16_t* hi,
                       int16_t* lo);

// The other way, rounded to the file's dtype: BF16 is `hi` as it stands. What DecodeElements read
// comes back in the same bits. Returns the index of the first that is not finite, or -1.
int64_t EncodeElements(TensorDtype dtype, const uint16_t* hi, const int16_t* lo, int64_t count,
                       char* bytes);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_ELEMENT_CONVERSION_H_
