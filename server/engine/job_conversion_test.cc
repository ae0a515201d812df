#include "server/engine/job_conversion.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace megatrain
