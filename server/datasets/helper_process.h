#ifndef SERVER_DATASETS_HELPER_PROCESS_H_
#define SERVER_DATASETS_HELPER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// A short-lived program: started with exactly this environment, no input, no other open files and
// a process group of its own; read until it ends; killed when it takes too long. Its group ends
// with it. A process that it moved out of the group is left alone: it may hold the streams, but
// nobody waits for it. Kill is thread-safe, the rest is for one thread.
class HelperProcess {
 public:
  struct Command {
    std::vector<std::string> arguments;    // the first is the program's path
    std::vector<std::string> environment;  // NAME=value
  };

  // How it ended, with the last 64 KiB of each stream.
  struct Outcome {
    int exit_code = -1;  // -1 when a signal ended it
    int signal = 0;
    bool timed_out = false;
    bool killed = false;  // by Kill
    std::string output;
    std::string errors;
  };

  static absl::StatusOr<std::unique_ptr<HelperProcess>> Start(const Command& command,
                                                              const Clock& clock);

  // Kills it if it still runs.
  ~HelperProcess();

  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // Waits for its end, at most `time_limit`. Once.
  Outcome Wait(absl::Duration time_limit);

  // Makes Wait return soon.
  void Kill();

 private:
  HelperProcess(pid_t pid, int output_fd, int errors_fd, const Clock& clock)
      : clock_(clock), pid_(pid), output_fd_(output_fd), errors_fd_(errors_fd) {}

  // Waits a moment for output or the program's end, and reads; true once the program has ended.
  bool ReadStreams(Outcome& outcome);
  void KillGroup();
  void Reap(Outcome& outcome);

  const Clock& clock_;
  const pid_t pid_;
  int output_fd_;  // -1 once it ended
  int errors_fd_;
  int pid_fd_ = -1;  // readable once it ended
  Mutex mutex_;
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;  // the pid may belong to another process now
  bool killed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace megatrain

#endif  // SERVER_DATASETS_HELPER_PROCESS_H_
