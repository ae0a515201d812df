#include "runtime/base/allowed_processors.h"

#include <sched.h>

namespace megatrain {

int AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace megatrain
