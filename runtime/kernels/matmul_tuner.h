// Measures which of cuBLASLt's algorithms are the fastest on the current device.

#ifndef RUNTIME_KERNELS_MATMUL_TUNER_H_
#define RUNTIME_KERNELS_MATMUL_TUNER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/kernels/matmul_choices.h"

namespace megatrain {

// What a table of choices is measured on.
absl::StatusOr<MatmulMachine> ReadMatmulMachine();

// One choice for each of `samples`. Takes a quarter of a second for each small one and about one
// for each large one, and as much device memory as the largest has operands, which it gives back:
// no more than the training that computes these products must have. RESOURCE_EXHAUSTED when it is
// not there.
absl::StatusOr<MatmulChoices> MeasureMatmulChoices(const std::vector<MatmulSample>& samples);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_TUNER_H_
