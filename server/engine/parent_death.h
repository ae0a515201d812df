#ifndef SERVER_ENGINE_PARENT_DEATH_H_
#define SERVER_ENGINE_PARENT_DEATH_H_

#include <sys/types.h>

#include "absl/status/status.h"

namespace megatrain {

// Has the kernel kill this process when its parent ends, however it ends, so that no engine is
// left that nobody owns. The kernel means the parent's thread that started this process: a parent
// starts engines from a thread that lives as long as itself. `parent` is the process that has to be
// it: one that died while this process was being loaded is told from another one that takes in
// orphans. 0: whichever it is. ABORTED when the parent is gone already.
absl::Status DieWithParent(pid_t parent);

}  // namespace megatrain

#endif  // SERVER_ENGINE_PARENT_DEATH_H_
