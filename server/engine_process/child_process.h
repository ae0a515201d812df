// A program that this one starts and watches.

#ifndef SERVER_ENGINE_PROCESS_CHILD_PROCESS_H_
#define SERVER_ENGINE_PROCESS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// How a program ended: by a signal, or by itself.
struct ExitReport {
  int signal = 0;     // 0: it ended by itself
  int exit_code = 0;  // then
};

// "was killed by signal 11 (Segmentation fault)", "ended with exit code 3".
std::string InWords(const ExitReport& report);

// Thread-safe.
class ChildProcess {
 public:
  struct Options {
    std::string path;  // of the program; not searched for
    std::vector<std::string> arguments;
    std::string log_path;                       // gets standard output and error, appended
    std::vector<std::string> environment = {};  // NAME=VALUE, where this process has no such name
  };

  // In a process group of its own, with no open files but the log and default signals. The child
  // may bind its life to the calling thread, so call from one that lives as long.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const Options& options);

  // Requires that Wait returned.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns when it has ended.
  ExitReport Wait();

  // It has ended: Wait returns at once.
  bool HasEnded();

  // To the whole group; nothing when it has ended.
  void Kill(int signal);

  pid_t pid() const { return pid_; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  Mutex mutex_;
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;  // its number may belong to another process
  ExitReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // SERVER_ENGINE_PROCESS_CHILD_PROCESS_H_
