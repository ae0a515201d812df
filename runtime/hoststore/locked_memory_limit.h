#ifndef RUNTIME_HOSTSTORE_LOCKED_MEMORY_LIMIT_H_
#define RUNTIME_HOSTSTORE_LOCKED_MEMORY_LIMIT_H_

#include <string>

namespace megatrain {

// This process's RLIMIT_MEMLOCK in words: "none", "8388608 bytes".
std::string LockedMemoryLimit();

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_LOCKED_MEMORY_LIMIT_H_
