#ifndef RUNTIME_OPS_COMPUTE_THREADS_H_
#define RUNTIME_OPS_COMPUTE_THREADS_H_

namespace megatrain {

// Threads that one op is spread over from now on, for callers on this thread and on threads that
// have not called an op yet; at least 1. Sums depend on it: equal bits need an equal number.
void SetComputeThreads(int count);

// Lowers that number where it is more than `limit`.
void LimitComputeThreads(int limit);

}  // namespace megatrain

#endif  // RUNTIME_OPS_COMPUTE_THREADS_H_
