// What a fork takes from the job it comes from. Pure.

#ifndef SERVER_JOBS_FORK_H_
#define SERVER_JOBS_FORK_H_

#include <cstdint>
#include <vector>

#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/job.pb.h"
#include "server/errors/errors.h"

namespace megatrain {

// What a fork of a job with `source` trains when its user says nothing: the same, to an output of
// its own.
v1::TrainingSpec DefaultForkSpec(v1::TrainingSpec source);

// Where a fork comes from.
struct ForkOrigin {
  v1::Checkpoint checkpoint;
  v1::TrainingSpec spec;  // of the checkpoint's job
  v1::ForkMode mode = v1::FORK_MODE_UNSPECIFIED;
  int64_t micro_batch_rows = 0;  // of the checkpoint, as its job's plan had it; for a full state
};

// Fields of `spec`, completed, that a fork cannot have: the weights belong to a model, and a full
// state to an order of rows, the bits of a step and the steps that it has done besides.
std::vector<FieldViolation> CheckFork(const v1::TrainingSpec& spec, const ForkOrigin& origin);

}  // namespace megatrain

#endif  // SERVER_JOBS_FORK_H_
