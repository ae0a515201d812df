// Exit codes: the one table, for the code and for docs/CLI.md.

#ifndef CLIENT_CLI_EXIT_CODE_H_
#define CLIENT_CLI_EXIT_CODE_H_

#include "absl/status/status.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

enum class ExitCode {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,  // of the command line, a job file or a request
  kNotFound = 3,
  kNotAuthenticated = 4,
  kDenied = 5,
  kPrecondition = 6,  // does not fit, exists already, is not in the right state
  kQuota = 7,         // a quota or a disk is full
  kUnavailable = 8,
  kTimedOut = 9,
  kJobFailed = 10,
  kJobCancelled = 11,
  kInterrupted = 130,
};

// Of an error.
ExitCode ExitCodeOf(const absl::Status& status);

// Of a job that was followed to its end.
ExitCode ExitCodeOf(v1::JobState final_state);

}  // namespace megatrain

#endif  // CLIENT_CLI_EXIT_CODE_H_
