#include "server/engine/job_conversion.h"

#include <cerrno>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/trainer/job_inputs.h"

namespace megatrain {
namespace {

engine::v1::RunJobRequest GoodRequest() {
  engine::v1::RunJobRequest request;
  request.set_model_path("/model");
  request.set_data_path("/data");
  request.set_output_path("/output");
  v1::TrainOptions& train = *request.mutable_spec()->mutable_train();
  train.set_steps(7);
  train.set_batch_rows(4);
  train.set_micro_batch_rows(2);
  train.set_max_sequence_length(99);
  train.set_packing(true);
  train.set_seed(-3);
  train.set_compute_dtype("bf16");
  train.set_max_gradient_norm(0.5);
  train.set_nonfinite_step_limit(2);
  v1::OptimizerOptions& optimizer = *train.mutable_optimizer();
  optimizer.set_name("adamw");
  optimizer.set_learning_rate(1e-4);
  optimizer.set_beta1(0.8);
  optimizer.set_beta2(0.9);
  optimizer.set_epsilon(1e-6);
  optimizer.set_weight_decay(0.1);
  v1::ScheduleOptions& schedule = *train.mutable_schedule();
  schedule.set_name("cosine");
  schedule.set_warmup_steps(3);
  schedule.set_floor_ratio(0.25);
  v1::PlacementOptions& placement = *request.mutable_spec()->mutable_placement();
  placement.set_order("micro_batch_major");
  placement.set_weight_slot_count(3);
  placement.set_resident_weights(true);
  placement.set_pin("slabs");
  placement.set_host_limit_bytes(11);
  placement.set_hbm_limit_bytes(12);
  return request;
}

TEST(JobConversionTest, EveryFieldArrives) {
  const absl::StatusOr<TrainJob> job = TrainJobFromProto(GoodRequest());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model_path, "/model");
  EXPECT_EQ(job->data_path, "/data");
  EXPECT_EQ(job->output_path, "/output");
  EXPECT_EQ(job->batches.steps, 7);
  EXPECT_EQ(job->batches.epochs, 0);
  EXPECT_EQ(job->batches.batch_rows, 4);
  EXPECT_EQ(job->batches.micro_batch_rows, 2);
  EXPECT_EQ(job->batches.max_sequence_length, 99);
  EXPECT_TRUE(job->batches.packing);
  EXPECT_EQ(job->batches.seed, -3);
  EXPECT_EQ(job->compute_dtype, ComputeDtype::kBfloat16);
  EXPECT_EQ(job->max_gradient_norm, 0.5);
  EXPECT_EQ(job->nonfinite_step_limit, 2);
  EXPECT_EQ(job->optimizer.beta1, 0.8);
  EXPECT_EQ(job->optimizer.beta2, 0.9);
  EXPECT_EQ(job->optimizer.epsilon, 1e-6);
  EXPECT_EQ(job->optimizer.weight_decay, 0.1);
  EXPECT_EQ(job->schedule.peak, 1e-4);
  EXPECT_EQ(job->schedule.shape, LearningRateShape::kCosine);
  EXPECT_EQ(job->schedule.warmup_steps, 3);
  EXPECT_EQ(job->schedule.floor_ratio, 0.25);
  EXPECT_EQ(job->order, MicroBatchOrder::kMicroBatchMajor);
  EXPECT_EQ(job->weight_slot_count, 3);
  EXPECT_TRUE(job->resident_weights);
  EXPECT_EQ(job->pin, PinMode::kSlabs);
  EXPECT_EQ(job->host_limit_bytes, 11);
  EXPECT_EQ(job->device_limit_bytes, 12);
}

TEST(JobConversionTest, WrongFieldsAreNamed) {
  using Change = std::function<void(engine::v1::RunJobRequest&)>;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto train = [](engine::v1::RunJobRequest& r) { return r.mutable_spec()->mutable_train(); };
  const std::vector<std::pair<std::string, Change>> changes = {
      {"model_path", [](auto& r) { r.set_model_path("x"); }},
      {"output_path", [](auto& r) { r.clear_output_path(); }},
      {"train.compute_dtype", [&](auto& r) { train(r)->set_compute_dtype(""); }},
      {"train.optimizer.name", [&](auto& r) { train(r)->mutable_optimizer()->set_name("sgd"); }},
      {"train.optimizer.learning_rate",
       [&](auto& r) { train(r)->mutable_optimizer()->set_learning_rate(-1); }},
      {"train.optimizer.learning_rate",
       [&](auto& r) { train(r)->mutable_optimizer()->set_learning_rate(kNan); }},
      {"train.optimizer.beta1", [&](auto& r) { train(r)->mutable_optimizer()->set_beta1(1); }},
      {"train.optimizer.beta2", [&](auto& r) { train(r)->mutable_optimizer()->set_beta2(-1); }},
      {"train.optimizer.epsilon", [&](auto& r) { train(r)->mutable_optimizer()->set_epsilon(0); }},
      {"train.optimizer.weight_decay",
       [&](auto& r) { train(r)->mutable_optimizer()->set_weight_decay(kNan); }},
      {"train.schedule.name", [&](auto& r) { train(r)->mutable_schedule()->set_name("x"); }},
      {"train.schedule.warmup_steps",
       [&](auto& r) { train(r)->mutable_schedule()->set_warmup_steps(-1); }},
      {"train.schedule.floor_ratio",
       [&](auto& r) { train(r)->mutable_schedule()->set_floor_ratio(2); }},
      {"train.max_gradient_norm", [&](auto& r) { train(r)->set_max_gradient_norm(-1); }},
      {"train.nonfinite_step_limit", [&](auto& r) { train(r)->set_nonfinite_step_limit(0); }},
      {"placement.order", [](auto& r) { r.mutable_spec()->mutable_placement()->set_order("x"); }},
  };
  for (const auto& [field, change] : changes) {
    engine::v1::RunJobRequest request = GoodRequest();
    change(request);
    const absl::Status status = TrainJobFromProto(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_TRUE(std::string(status.message()).starts_with(field)) << field << ": " << status;
  }
}

TEST(JobConversionTest, StreamsKeepNamesAndSums) {
  AllStreamFigures figures{};
  figures[static_cast<size_t>(StreamKind::kHostToDevice)].busy = absl::Seconds(2);
  figures[static_cast<size_t>(StreamKind::kHostToDevice)].operation_count = 5;
  const engine::v1::StreamFigures proto = StreamFiguresToProto(figures, ProcessMemory{3, 4});
  ASSERT_EQ(proto.streams_size(), 8);
  EXPECT_EQ(proto.streams(1).stream(), "h2d");
  EXPECT_EQ(proto.streams(1).busy_seconds(), 2);
  EXPECT_EQ(proto.streams(1).operation_count(), 5);
  EXPECT_EQ(proto.streams(1).wait_seconds().size(), 10u);
  EXPECT_EQ(proto.resident_bytes(), 3);
  EXPECT_EQ(proto.peak_host_bytes(), 4);
}

TEST(JobConversionTest, ReasonsAreCodesAndSentences) {
  const v1::JobReason reason = ReasonToProto(absl::ResourceExhaustedError("too large"));
  EXPECT_EQ(reason.code(), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(reason.message(), "too large");
}

TEST(JobConversionTest, CheckpointsAndEvaluationArrive) {
  engine::v1::RunJobRequest request = GoodRequest();
  request.set_checkpoint_folder("/checkpoints");
  request.set_resume_checkpoint_path("/checkpoints/step-00000001");
  request.set_model_fingerprint("model");
  request.set_data_fingerprint("data");
  request.set_evaluation_data_path("/validation");
  request.set_evaluation_data_fingerprint("validation");
  v1::CheckpointOptions& checkpoint = *request.mutable_spec()->mutable_checkpoint();
  checkpoint.set_every_steps(5);
  checkpoint.set_every_minutes(7);
  checkpoint.set_keep_last(3);
  checkpoint.set_at_end(true);
  v1::EvaluationOptions& evaluation = *request.mutable_spec()->mutable_evaluation();
  evaluation.set_dataset("datasets/v");
  evaluation.set_every_steps(11);
  evaluation.set_early_stopping_patience(2);
  evaluation.set_early_stopping_min_delta(0.5);
  absl::StatusOr<TrainJob> job = TrainJobFromProto(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->save.folder, "/checkpoints");
  EXPECT_EQ(job->save.every_steps, 5);
  EXPECT_EQ(job->save.every, absl::Minutes(7));
  EXPECT_EQ(job->save.keep_count, 3);
  EXPECT_TRUE(job->save.at_end);
  EXPECT_NE(job->save.spec.find("\"every_steps\":\"11\""), std::string::npos) << job->save.spec;
  EXPECT_EQ(job->start.resume_path, "/checkpoints/step-00000001");
  EXPECT_EQ(job->start.weights_path, "");
  EXPECT_EQ(job->model_fingerprint, "model");
  EXPECT_EQ(job->data_fingerprint, "data");
  EXPECT_EQ(job->evaluation.data_path, "/validation");
  EXPECT_EQ(job->evaluation.data_fingerprint, "validation");
  EXPECT_EQ(job->evaluation.every_steps, 11);
  EXPECT_EQ(job->evaluation.patience, 2);
  EXPECT_EQ(job->evaluation.min_delta, 0.5);

  const engine::v1::RunJobRequest good = request;
  const auto refuses = [&](const std::string& field) {
    const absl::Status status = TrainJobFromProto(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_NE(status.message().find(field), absl::string_view::npos) << status;
    request = good;
  };
  request.set_weights_checkpoint_path("/other");
  refuses("at most one may be set");
  request.set_checkpoint_folder("relative");
  refuses("checkpoint_folder");
  request.mutable_spec()->mutable_checkpoint()->set_every_steps(-1);
  refuses("checkpoint.every_steps");
  request.mutable_spec()->mutable_evaluation()->set_split(0.5);
  refuses("only one of split and dataset");
  request.mutable_spec()->mutable_evaluation()->set_split(std::numeric_limits<double>::quiet_NaN());
  refuses("evaluation.split");
  request.mutable_spec()->mutable_evaluation()->set_early_stopping_patience(-1);
  refuses("evaluation.early_stopping_patience");
}

TEST(JobConversionTest, WhatAJobTellsArrives) {
  const engine::v1::CheckpointSaved saved = CheckpointToProto({.id = "step-00000007",
                                                               .step = 7,
                                                               .trigger = CheckpointTrigger::kPause,
                                                               .size_bytes = 99,
                                                               .save = absl::Seconds(3),
                                                               .stall = absl::Seconds(2)});
  EXPECT_EQ(saved.checkpoint_id(), "step-00000007");
  EXPECT_EQ(saved.step(), 7);
  EXPECT_EQ(saved.trigger(), v1::CHECKPOINT_TRIGGER_PAUSE);
  EXPECT_EQ(saved.size_bytes(), 99);
  EXPECT_EQ(saved.save_seconds(), 3);
  EXPECT_EQ(saved.stall_seconds(), 2);

  const auto reason = [](absl::Status status) {
    return CheckpointFailureToProto({.step = 4, .status = std::move(status)}).reason();
  };
  EXPECT_EQ(reason(absl::ResourceExhaustedError("full")).code(), "DISK_FULL");
  EXPECT_EQ(reason(absl::ErrnoToStatus(EIO, "broken")).code(), "DISK_FAILED");
  EXPECT_EQ(reason(absl::DeadlineExceededError("hangs")).code(), "DISK_STALLED");
  EXPECT_EQ(reason(absl::ResourceExhaustedError("full")).message(), "full");
  EXPECT_EQ(ReasonToProto(MarkUnusableCheckpoint(absl::DataLossError("bytes"))).code(),
            "CHECKPOINT_CORRUPT");
  EXPECT_EQ(ReasonToProto(absl::DataLossError("bytes")).code(), "DATA_LOSS");

  EXPECT_EQ(EndToProto(TrainResult{.paused_checkpoint = "step-00000007"}).paused().checkpoint_id(),
            "step-00000007");
  EXPECT_TRUE(EndToProto(TrainResult{.stopped_early = true}).finished().stopped_early());
  EXPECT_EQ(EndToProto(absl::CancelledError("stop")).failed().code(), "CANCELLED");

  engine::v1::SaveCheckpointRequest request;
  EXPECT_EQ(SaveRequestFromProto(request).trigger, CheckpointTrigger::kManual);
  EXPECT_FALSE(SaveRequestFromProto(request).then_stop);
  request.set_trigger(v1::CHECKPOINT_TRIGGER_DRAIN);
  request.set_then_stop(true);
  EXPECT_EQ(SaveRequestFromProto(request).trigger, CheckpointTrigger::kDrain);
  EXPECT_TRUE(SaveRequestFromProto(request).then_stop);
}

}  // namespace
}  // namespace megatrain
