// What the verbs that make a job share: submit and fork.

#ifndef CLIENT_CLI_NEW_JOB_H_
#define CLIENT_CLI_NEW_JOB_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/pending_request.h"
#include "client/cli/session.h"
#include "client/lib/connection.h"
#include "megatrain/v1/job.pb.h"
#include "runtime/base/status_macros.h"

namespace megatrain {

struct NewJobFlags {
  std::string request_id;  // empty: made here
  bool follow = false;
  bool wait = false;
  bool detach = false;
  bool dry_run = false;
};

// Adds the flags to a verb; `flags` outlives it.
void AddNewJobFlags(CLI::App& verb, NewJobFlags& flags);

// Prints an accepted job, or with --dry-run its plan alone, and follows it when that is asked for.
absl::StatusOr<ExitCode> ReportNewJob(Session& session, const v1::Job& job,
                                      const NewJobFlags& flags);

// The server has got the request and said something to it.
bool IsAnswer(const absl::Status& status);

// Sends a request that makes a job: CreateJob or ForkJob. Without --request-id, one that got no
// answer is the same request when the command is repeated.
template <typename Request>
absl::StatusOr<v1::Job> SendNewJob(
    Session& session,
    grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&, v1::Job*),
    Request request, const NewJobFlags& flags) {
  Connection& connection = session.connection();
  request.set_validate_only(flags.dry_run);
  request.set_request_id(flags.request_id);
  if (flags.dry_run || !flags.request_id.empty()) {
    return connection.Call(CallKind::kWrite, method, request);
  }
  PendingRequest pending(session.environment(),
                         absl::StrCat(connection.options().address, " ", request.GetTypeName(), " ",
                                      request.ShortDebugString()));
  request.set_request_id(pending.id());
  absl::StatusOr<v1::Job> job = connection.Call(CallKind::kWrite, method, request);
  if (IsAnswer(job.status())) {
    pending.Answered();
  }
  return job;
}

}  // namespace megatrain

#endif  // CLIENT_CLI_NEW_JOB_H_
