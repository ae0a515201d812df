#ifndef SERVER_CHECKPOINTS_CHECKPOINT_PARTS_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_PARTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "server/database/database.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// What the catalogue of checkpoints and its parts work with. All outlive them.
struct CheckpointParts {
  Database& database;
  FileSystem& disk;
  const Clock& clock;
  JobStore& jobs;
  std::string jobs_folder;                         // of `{job}/checkpoints`
  std::function<void(int64_t)> on_retention;       // bytes that it freed
  std::function<void(const std::string&)> report;  // what an operator should read
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_PARTS_H_
