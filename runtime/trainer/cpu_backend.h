#ifndef RUNTIME_TRAINER_CPU_BACKEND_H_
#define RUNTIME_TRAINER_CPU_BACKEND_H_

#include <memory>

#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// Computes on this machine's processors, on so many threads at a time: equal results need an equal
// number. Attention is always deterministic here. One a process.
std::unique_ptr<ComputeBackend> MakeCpuBackend(int compute_threads);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_CPU_BACKEND_H_
