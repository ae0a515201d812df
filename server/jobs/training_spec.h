// What a job asks for: defaults and rules.

#ifndef SERVER_JOBS_TRAINING_SPEC_H_
#define SERVER_JOBS_TRAINING_SPEC_H_

#include <string>
#include <vector>

#include "megatrain/v1/job.pb.h"
#include "server/errors/errors.h"

namespace megatrain {

struct SpecDefaults {
  std::string output;         // "models/addition"
  std::string compute_dtype;  // "fp32" on a CPU engine
};

// Fills in every default that job.proto names, then checks every field: the violations found, by
// paths that start with "spec.". Names are checked by form only. `for_plan`: what a plan does not
// need (data set, number of steps) may be absent.
std::vector<FieldViolation> CompleteTrainingSpec(v1::TrainingSpec& spec,
                                                 const SpecDefaults& defaults, bool for_plan);

}  // namespace megatrain

#endif  // SERVER_JOBS_TRAINING_SPEC_H_
