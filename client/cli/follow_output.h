// A followed job on the terminal.

#ifndef CLIENT_CLI_FOLLOW_OUTPUT_H_
#define CLIENT_CLI_FOLLOW_OUTPUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/exit_code.h"
#include "client/cli/session.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

enum class FollowStyle {
  kProgress,  // a bar on a terminal, else a line now and then
  kSilent,    // only the end
  kEvents,    // kProgress, and with -o json each event on stdout
};

// Follows `name` until it ends and reports how: the exit code is the job's. Ctrl-C leaves the job
// alone, tells how to come back and gives kInterrupted.
absl::StatusOr<ExitCode> FollowToTheEnd(Session& session, const std::string& name,
                                        FollowStyle style);

// One line (and for a failure its reason) about a job that has ended.
ExitCode ReportEnd(Session& session, const v1::Job& job);

// After Ctrl-C: says that the job goes on and how to come back.
ExitCode ReportDetached(Session& session, const std::string& name);

}  // namespace megatrain

#endif  // CLIENT_CLI_FOLLOW_OUTPUT_H_
