#ifndef RUNTIME_TRAINER_WARM_UP_H_
#define RUNTIME_TRAINER_WARM_UP_H_

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// Trains a tiny model of no meaning for two steps in each compute dtype: afterwards libraries have
// started their threads and hold the buffers that they keep for good.
absl::Status WarmUpLibraries(ComputeBackend& backend, int optimizer_threads, Clock& clock);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_WARM_UP_H_
