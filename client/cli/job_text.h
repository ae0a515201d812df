// A job in words: where it stands, and what its user can do about it.

#ifndef CLIENT_CLI_JOB_TEXT_H_
#define CLIENT_CLI_JOB_TEXT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

// What to type for a verb and its arguments: "megatrain resume a" for "resume a".
using CommandText = std::function<std::string(const std::string&)>;

// A save failed, and the job waits with its state in memory.
bool IsHolding(const v1::Job& job);

// Of the state, and what is special in it: "RUNNING", "RUNNING, saving", "QUEUED, held".
std::string StateWords(const v1::Job& job);

// What a job that does not go on by itself waits for, and what to type: one that holds, is paused
// or held, or has ended without its result but with a checkpoint. Empty for others.
std::vector<std::string> Advice(const v1::Job& job, const CommandText& command);

// All that is known of a job, as names and values; what is not there yet is left out.
std::vector<std::pair<std::string, std::string>> JobFacts(const v1::Job& job, absl::Time now);

}  // namespace megatrain

#endif  // CLIENT_CLI_JOB_TEXT_H_
