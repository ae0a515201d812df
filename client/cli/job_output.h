#ifndef CLIENT_CLI_JOB_OUTPUT_H_
#define CLIENT_CLI_JOB_OUTPUT_H_

#include "client/cli/job_text.h"
#include "client/cli/session.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

// The answer to a verb that changes a job, on stdout: its name and state, or as the flags want it.
void PrintJobState(Session& session, const v1::Job& job);

// What a job waits for and what to type, on stderr; nothing for one that goes on by itself.
void PrintAdvice(Session& session, const v1::Job& job);

// What to type for a verb and its arguments to reach the server that is talked to.
CommandText CommandsOf(const Session& session);

}  // namespace megatrain

#endif  // CLIENT_CLI_JOB_OUTPUT_H_
