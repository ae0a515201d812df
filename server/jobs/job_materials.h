// What the controller needs of data sets, models and folders: the seam to the catalogue.

#ifndef SERVER_JOBS_JOB_MATERIALS_H_
#define SERVER_JOBS_JOB_MATERIALS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

// Thread-safe. Calls return at once; answers come on any thread, one for each call.
class JobMaterials {
 public:
  virtual ~JobMaterials() = default;

  // What the engine reads.
  struct Prepared {
    std::string model_path;  // a Hugging Face folder
    std::string model_fingerprint;
    std::string data_path;  // a folder of token shards
    std::string data_fingerprint;
    std::string evaluation_data_path;  // the same of spec.evaluation.dataset; empty without one
    std::string evaluation_data_fingerprint;
  };
  using PreparedCallback = std::function<void(absl::StatusOr<Prepared>)>;

  // Finds the model of `job.spec` and makes its tokens, or finds them. An error ends the job; its
  // message is for the user. CANCELLED after StopPreparing.
  virtual void Prepare(const v1::Job& job, PreparedCallback done) = 0;

  // Lets a running Prepare end soon. Its answer comes all the same.
  virtual void StopPreparing(const std::string& job_name) = 0;

  // Where the engine writes the result of this attempt: a folder that does not exist, on the disk
  // of the models.
  virtual std::string OutputFolder(const v1::Job& job) = 0;

  using PublishedCallback = std::function<void(absl::StatusOr<std::string>)>;

  // Makes the output folder of a job that was trained a durable version of its output model and
  // gives the version's name. Idempotent by job, also across a restart: a job that was published
  // gets the same version again.
  virtual void Publish(const v1::Job& job, PublishedCallback done) = 0;

  // Removes the output folder of this attempt, if it is there.
  virtual void Discard(const v1::Job& job) = 0;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_MATERIALS_H_
