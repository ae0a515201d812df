// The steps in which a job gets its host memory, each with what it came to in the job's log.

#ifndef RUNTIME_TRAINER_HOST_MEMORY_H_
#define RUNTIME_TRAINER_HOST_MEMORY_H_

#include "absl/status/status.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/trainer/job_progress.h"
#include "runtime/trainer/model_session.h"

namespace megatrain {

// Gives the session's host store its memory. The log says how long it took and which pages it got.
// RESOURCE_EXHAUSTED when memory ends, CANCELLED when the observer asks to stop.
absl::Status PrepareMemory(ModelSession& session, JobProgress& progress);

// Pins what of the store is to cross the bus. The log says how much that was, how long it took and
// what the limit on locked memory is. With PinMode::kAuto a refusal is no error: then the log says
// what is not pinned, why, and what that costs, measured; as it does with kSlabs, which pins
// nothing. With kFull the pipeline will not start. CANCELLED when the observer asks to stop.
absl::Status PinMemory(ModelSession& session, const PipelineOptions& options,
                       JobProgress& progress);

// Starts the pipeline, with host memory for activations where the placement has some there: the log
// says how much it is, and, where it is not pinned, why and how it crosses instead. Errors as
// StepPipeline::Create, or CANCELLED.
absl::Status StartPipeline(ModelSession& session, const PipelineOptions& options,
                           JobProgress& progress);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_HOST_MEMORY_H_
