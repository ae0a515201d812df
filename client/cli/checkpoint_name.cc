#include "client/cli/checkpoint_name.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/lib/error_text.h"

namespace megatrain {
namespace {

// Job and checkpoint; empty unless both are there.
std::vector<std::string> Parts(std::string_view text) {
  std::vector<std::string> parts = absl::StrSplit(std::string(text), '/');
  if (parts.size() > 2 && parts[0] == "jobs") {
    parts.erase(parts.begin());
  }
  if (parts.size() == 3 && parts[1] == "checkpoints") {
    parts.erase(parts.begin() + 1);
  }
  const bool whole =
      parts.size() == 2 && parts[0] != "jobs" && !parts[0].empty() && !parts[1].empty();
  return whole ? parts : std::vector<std::string>();
}

}  // namespace

bool NamesCheckpoint(std::string_view text) { return !Parts(text).empty(); }

absl::StatusOr<std::string> CheckpointName(std::string_view text) {
  const std::vector<std::string> parts = Parts(text);
  if (parts.empty()) {
    return WithClientReason(
        WithHint(absl::InvalidArgumentError(
                     absl::StrCat("\"", std::string(text), "\" names no checkpoint")),
                 "JOB/CHECKPOINT, such as addition/step-00000120: megatrain checkpoint ls"),
        "INVALID_NAME");
  }
  return absl::StrCat("jobs/", parts[0], "/checkpoints/", parts[1]);
}

absl::StatusOr<std::string> CheckpointNameIn(std::string_view job, std::string_view text) {
  const bool is_alone = text.find('/') == std::string_view::npos;
  return CheckpointName(is_alone ? absl::StrCat(std::string(job), "/", std::string(text))
                                 : std::string(text));
}

std::string ShortCheckpointName(std::string_view full_name) {
  const std::vector<std::string> parts = Parts(full_name);
  return parts.empty() ? std::string(full_name) : absl::StrCat(parts[0], "/", parts[1]);
}

std::string JobOfCheckpoint(std::string_view full_name) {
  const std::vector<std::string> parts = Parts(full_name);
  return parts.empty() ? "" : absl::StrCat("jobs/", parts[0]);
}

}  // namespace megatrain
