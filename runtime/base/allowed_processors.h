// How many processors this process may use: of a cpuset, or after taskset, fewer than there are.

#ifndef RUNTIME_BASE_ALLOWED_PROCESSORS_H_
#define RUNTIME_BASE_ALLOWED_PROCESSORS_H_

namespace megatrain {

// At least 1. Of the calling thread's affinity (sched_getaffinity(2)), which threads that it starts
// inherit.
int AllowedProcessors();

}  // namespace megatrain

#endif  // RUNTIME_BASE_ALLOWED_PROCESSORS_H_
