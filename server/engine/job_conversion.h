// Between the daemon's messages and the runtime's values.

#ifndef SERVER_ENGINE_JOB_CONVERSION_H_
#define SERVER_ENGINE_JOB_CONVERSION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "megatrain/engine/v1/engine.pb.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/job.pb.h"
#include "runtime/planner/planner.h"
#include "runtime/trainer/train_job.h"
#include "runtime/trainer/trainer.h"

namespace megatrain {

// INVALID_ARGUMENT names the field that is absent, unknown or out of range.
absl::StatusOr<TrainJob> TrainJobFromProto(const engine::v1::RunJobRequest& request);

// UNSPECIFIED counts as MANUAL.
SaveRequest SaveRequestFromProto(const engine::v1::SaveCheckpointRequest& request);

engine::v1::Started StartedToProto(const Plan& plan, int64_t step_count, int64_t first_step);
engine::v1::CheckpointSaved CheckpointToProto(const CheckpointReport& report);
v1::CheckpointFailure CheckpointFailureToProto(const CheckpointFailure& failure);
v1::EvaluationRecord EvaluationToProto(const EvaluationReport& report, absl::Time end_time);
v1::StepRecord StepRecordToProto(const StepReport& report, absl::Time end_time);
engine::v1::StreamFigures StreamFiguresToProto(const AllStreamFigures& figures,
                                               const ProcessMemory& memory);

// The last message of a job: finished, paused or failed.
engine::v1::RunJobEvent EndToProto(const absl::StatusOr<TrainResult>& result);

// The status' code in UPPER_SNAKE, or CHECKPOINT_CORRUPT, and its message.
v1::JobReason ReasonToProto(const absl::Status& status);

}  // namespace megatrain

#endif  // SERVER_ENGINE_JOB_CONVERSION_H_
