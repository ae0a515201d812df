// Which checkpoints of a job are kept. Pure.

#ifndef SERVER_CHECKPOINTS_RETENTION_H_
#define SERVER_CHECKPOINTS_RETENTION_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "megatrain/v1/checkpoint.pb.h"

namespace megatrain {

struct RetentionRules {
  int64_t keep_last = 1;         // newest ones that are not damaged; at least 1
  std::set<std::string> needed;  // names of those that somebody goes on from
  // A job that went back to this step leaves its later checkpoints that were there then, once it
  // has written one more: those of a step above it.
  int64_t rewound_step = INT64_MAX;
  std::set<std::string> before_rewind;  // names of those that were there then
};

// Names of the ones to remove, of all checkpoints of one job in `newest_first`. Kept are those of
// the rules, the best by evaluation, the newest of a pause, and what is pinned. While none is
// whole, none goes.
std::vector<std::string> CheckpointsToRemove(const std::vector<v1::Checkpoint>& newest_first,
                                             const RetentionRules& rules);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_RETENTION_H_
