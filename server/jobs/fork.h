// What a fork takes from the job it comes from. Pure.

#ifndef SERVER_JOBS_FORK_H_
#define SERVER_JOBS_FORK_H_

#include <vector>

#include "megatrain/v1/job.pb.h"
#include "server/errors/errors.h"

namespace megatrain {

// What a fork of a job with `source` trains when its user says nothing: the same, to an output of
// its own.
v1::TrainingSpec DefaultForkSpec(v1::TrainingSpec source);

// Fields of `spec`, completed, that a fork in `mode` cannot have: the weights belong to a model,
// and a full state to an order of rows and the bits of a step besides.
std::vector<FieldViolation> CheckFork(const v1::TrainingSpec& spec, const v1::TrainingSpec& source,
                                      v1::ForkMode mode);

}  // namespace megatrain

#endif  // SERVER_JOBS_FORK_H_
