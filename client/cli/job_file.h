// A job file: what `megatrain submit` reads.

#ifndef CLIENT_CLI_JOB_FILE_H_
#define CLIENT_CLI_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.pb.h"

namespace megatrain {

// The request that a job file asks for: keys of TrainingSpec, and display_name and labels. Each of
// `settings` is a `key=value` that is put over the file: "train.steps=10". `model: models/x@2`
// names a version. INVALID_ARGUMENT names file and line, or the setting; NOT_FOUND.
absl::StatusOr<v1::CreateJobRequest> ReadJobFile(const std::string& path,
                                                 const std::vector<std::string>& settings);

// The same without a file: the settings alone.
absl::StatusOr<v1::CreateJobRequest> ReadJobSettings(const std::vector<std::string>& settings);

// What a job file (none when `path` is empty) and settings change.
struct JobChanges {
  std::string path;
  std::vector<std::string> settings;

  bool empty() const { return path.empty() && settings.empty(); }
};

// `base` with the changes laid over it. A key that excludes another one, as `steps` does `epochs`,
// takes the other one's place.
absl::StatusOr<v1::CreateJobRequest> ReadJobChanges(v1::CreateJobRequest base,
                                                    const JobChanges& changes);

}  // namespace megatrain

#endif  // CLIENT_CLI_JOB_FILE_H_
