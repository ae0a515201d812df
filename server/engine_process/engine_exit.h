#ifndef SERVER_ENGINE_PROCESS_ENGINE_EXIT_H_
#define SERVER_ENGINE_PROCESS_ENGINE_EXIT_H_

namespace megatrain {

// The exit code of an engine that ended itself because its job stood still; the last line that it
// wrote says where.
inline constexpr int kStalledExitCode = 80;

}  // namespace megatrain

#endif  // SERVER_ENGINE_PROCESS_ENGINE_EXIT_H_
