// Numbers, times and names as the CLI writes them.

#ifndef CLIENT_CLI_TEXT_H_
#define CLIENT_CLI_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/dataset.pb.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/model.pb.h"

namespace megatrain {

// "512 B", "1.50 KiB", "64.0 GiB", "123 MiB": three digits that count.
std::string FormatBytes(int64_t bytes);

// "950", "134.5M", "7.62B".
std::string FormatCount(int64_t count);

// "0.4 s", "12 s", "3 min 5 s", "2 h 10 min".
std::string FormatSpan(absl::Duration span);

// How long before `now` it was; "" for a time that is not set.
std::string FormatAge(const google::protobuf::Timestamp& time, absl::Time now);

// "QUEUED": as the API's table of states, without the enum's prefix.
std::string StateName(v1::JobState state);
std::string StateName(v1::DatasetState state);
std::string StateName(v1::ModelState state);

// "PERIODIC".
std::string TriggerName(v1::CheckpointTrigger trigger);

bool IsFinal(v1::JobState state);

// "jobs/a" of "a" or "jobs/a".
std::string FullName(std::string_view collection, std::string_view name);

// "a" of "jobs/a".
std::string ShortName(std::string_view full_name);

// A sparkline of the values, one character each; "" for none.
std::string Sparkline(const std::vector<double>& values);

// Columns of a text in a terminal, for the characters that the CLI itself writes.
int ColumnsOf(std::string_view utf8);

// What must not reach a terminal from elsewhere (escape sequences) replaced by '?'.
std::string Printable(std::string_view text);

}  // namespace megatrain

#endif  // CLIENT_CLI_TEXT_H_
