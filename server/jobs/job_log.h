// The log of each job: a text file of whole lines.

#ifndef SERVER_JOBS_JOB_LOG_H_
#define SERVER_JOBS_JOB_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// `<folder>/<job id>/log`. Append from one thread; Read from any.
class JobLog {
 public:
  // `files` outlives this.
  JobLog(FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  // Appends `line`, dated. Line ends within it become spaces.
  absl::Status Append(const std::string& job_id, absl::Time time, std::string_view line);

  // Whole lines from `offset_bytes` on, at most `limit_bytes`; empty when there are none, also for
  // a job that has no log yet. OUT_OF_RANGE behind the end.
  absl::StatusOr<std::string> Read(const std::string& job_id, int64_t offset_bytes,
                                   int64_t limit_bytes) const;

 private:
  std::string Path(const std::string& job_id) const;

  FileSystem& files_;
  const std::string folder_;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_LOG_H_
