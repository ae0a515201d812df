#include "server/jobs/training_spec.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SpecDefaults kDefaults{"models/addition", "fp32"};

v1::TrainingSpec Minimal() {
  v1::TrainingSpec spec;
  spec.set_model("models/smollm2");
  spec.set_dataset("datasets/addition");
  spec.mutable_train()->set_steps(120);
  return spec;
}

std::vector<std::string> Fields(v1::TrainingSpec spec, bool for_plan = false) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : CompleteTrainingSpec(spec, kDefaults, for_plan)) {
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(TrainingSpecTest, FillsInEveryDefault) {
  v1::TrainingSpec spec = Minimal();
  EXPECT_THAT(CompleteTrainingSpec(spec, kDefaults, /*for_plan=*/false), IsEmpty());
  EXPECT_EQ(spec.output(), "models/addition");
  EXPECT_EQ(spec.train().batch_rows(), 8);
  EXPECT_EQ(spec.train().micro_batch_rows(), 0);
  EXPECT_EQ(spec.train().max_sequence_length(), 1024);
  EXPECT_EQ(spec.train().compute_dtype(), "fp32");
  EXPECT_EQ(spec.train().attention(), "fast");
  EXPECT_EQ(spec.train().max_gradient_norm(), 1.0);
  EXPECT_EQ(spec.train().on_bad_row(), "error");
  EXPECT_EQ(spec.train().nonfinite_step_limit(), 3);
  EXPECT_EQ(spec.train().optimizer().name(), "adamw");
  EXPECT_EQ(spec.train().optimizer().learning_rate(), 1e-5);
  EXPECT_EQ(spec.train().optimizer().beta1(), 0.9);
  EXPECT_EQ(spec.train().optimizer().beta2(), 0.95);
  EXPECT_EQ(spec.train().optimizer().epsilon(), 1e-8);
  EXPECT_EQ(spec.train().optimizer().weight_decay(), 0.0);
  EXPECT_EQ(spec.train().schedule().name(), "linear");
  EXPECT_EQ(spec.placement().order(), "auto");
  EXPECT_EQ(spec.retry().max_attempts(), 3);
}

TEST(TrainingSpecTest, KeepsWhatIsSetAlsoToZero) {
  v1::TrainingSpec spec = Minimal();
  spec.mutable_train()->set_max_gradient_norm(0);
  spec.mutable_train()->mutable_optimizer()->set_beta1(0);
  EXPECT_THAT(CompleteTrainingSpec(spec, kDefaults, /*for_plan=*/false), IsEmpty());
  EXPECT_EQ(spec.train().max_gradient_norm(), 0);
  EXPECT_EQ(spec.train().optimizer().beta1(), 0);
}

TEST(TrainingSpecTest, NamesEveryViolationAtOnce) {
  v1::TrainingSpec spec;
  spec.set_dataset("dataset/addition");
  spec.mutable_train()->set_batch_rows(-1);
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(std::nan(""));
  spec.mutable_train()->mutable_schedule()->set_name("cosin");
  EXPECT_THAT(
      Fields(spec),
      ElementsAre("spec.model", "spec.dataset", "spec.train.epochs", "spec.train.batch_rows",
                  "spec.train.optimizer.learning_rate", "spec.train.schedule.name"));
}

TEST(TrainingSpecTest, SuggestsTheNearestName) {
  v1::TrainingSpec spec = Minimal();
  spec.mutable_train()->mutable_schedule()->set_name("cosin");
  EXPECT_THAT(CompleteTrainingSpec(spec, kDefaults, false)[0].description,
              HasSubstr("did you mean cosine?"));
}

TEST(TrainingSpecTest, APlanNeedsLess) {
  v1::TrainingSpec spec;
  spec.set_model("models/a/versions/3");
  EXPECT_THAT(Fields(spec, /*for_plan=*/true), IsEmpty());
  EXPECT_THAT(Fields(spec), ElementsAre("spec.dataset", "spec.train.epochs"));
}

TEST(TrainingSpecTest, RefusesEachWrongValueByItsField) {
  using Change = std::function<void(v1::TrainingSpec&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"spec.model", [](auto& s) { s.set_model("models/A"); }},
      {"spec.dataset", [](auto& s) { s.set_dataset("datasets/../x"); }},
      {"spec.output", [](auto& s) { s.set_output("models/a/versions/1"); }},
      {"spec.train.epochs", [](auto& s) { s.mutable_train()->set_epochs(1); }},
      {"spec.train.steps", [](auto& s) { s.mutable_train()->set_steps(-1); }},
      {"spec.train.micro_batch_rows", [](auto& s) { s.mutable_train()->set_micro_batch_rows(-1); }},
      {"spec.train.max_sequence_length",
       [](auto& s) { s.mutable_train()->set_max_sequence_length(1); }},
      {"spec.train.attention", [](auto& s) { s.mutable_train()->set_attention("slow"); }},
      {"spec.train.compute_dtype", [](auto& s) { s.mutable_train()->set_compute_dtype("fp16"); }},
      {"spec.train.max_gradient_norm",
       [](auto& s) { s.mutable_train()->set_max_gradient_norm(INFINITY); }},
      {"spec.train.on_bad_row", [](auto& s) { s.mutable_train()->set_on_bad_row("ignore"); }},
      {"spec.train.nonfinite_step_limit",
       [](auto& s) { s.mutable_train()->set_nonfinite_step_limit(-2); }},
      {"spec.train.optimizer.name",
       [](auto& s) { s.mutable_train()->mutable_optimizer()->set_name("sgd"); }},
      {"spec.train.optimizer.beta2",
       [](auto& s) { s.mutable_train()->mutable_optimizer()->set_beta2(1); }},
      {"spec.train.optimizer.epsilon",
       [](auto& s) { s.mutable_train()->mutable_optimizer()->set_epsilon(0); }},
      {"spec.train.optimizer.weight_decay",
       [](auto& s) { s.mutable_train()->mutable_optimizer()->set_weight_decay(-0.1); }},
      {"spec.train.schedule.warmup_steps",
       [](auto& s) { s.mutable_train()->mutable_schedule()->set_warmup_steps(121); }},
      {"spec.train.schedule.floor_ratio",
       [](auto& s) { s.mutable_train()->mutable_schedule()->set_floor_ratio(0.1); }},
      {"spec.placement.hbm_limit_bytes",
       [](auto& s) { s.mutable_placement()->set_hbm_limit_bytes(-1); }},
      {"spec.placement.order", [](auto& s) { s.mutable_placement()->set_order("random"); }},
      {"spec.placement.pin", [](auto& s) { s.mutable_placement()->set_pin("half"); }},
      {"spec.placement.weight_slot_count",
       [](auto& s) { s.mutable_placement()->set_weight_slot_count(-1); }},
      {"spec.retry.max_attempts", [](auto& s) { s.mutable_retry()->set_max_attempts(-1); }},
  };
  for (const auto& [field, change] : cases) {
    v1::TrainingSpec spec = Minimal();
    change(spec);
    EXPECT_THAT(Fields(spec), ElementsAre(field)) << spec.ShortDebugString();
  }
}

}  // namespace
}  // namespace megatrain
