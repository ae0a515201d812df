#include "server/jobs/training_spec.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/nearest_name.h"
#include "server/names/resource_name.h"

namespace megatrain {
namespace {

// Bounds against slips of the pen: no real job comes near them, and products of two stay within
// 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 31;
constexpr int64_t kMaxSequenceLength = int64_t{1} << 24;
constexpr int kMaxAttempts = 100;
constexpr int kMaxWeightSlots = 64;
constexpr int kMaxPriority = 100;

void FillOptimizer(v1::OptimizerOptions& optimizer) {
  if (optimizer.name().empty()) {
    optimizer.set_name("adamw");
  }
  optimizer.set_learning_rate(optimizer.has_learning_rate() ? optimizer.learning_rate() : 1e-5);
  optimizer.set_beta1(optimizer.has_beta1() ? optimizer.beta1() : 0.9);
  optimizer.set_beta2(optimizer.has_beta2() ? optimizer.beta2() : 0.95);
  optimizer.set_epsilon(optimizer.has_epsilon() ? optimizer.epsilon() : 1e-8);
  optimizer.set_weight_decay(optimizer.has_weight_decay() ? optimizer.weight_decay() : 0.0);
}

void FillTrain(v1::TrainOptions& train, const SpecDefaults& defaults) {
  train.set_batch_rows(train.batch_rows() == 0 ? 8 : train.batch_rows());
  train.set_max_sequence_length(train.max_sequence_length() == 0 ? 1024
                                                                 : train.max_sequence_length());
  train.set_max_gradient_norm(train.has_max_gradient_norm() ? train.max_gradient_norm() : 1.0);
  train.set_nonfinite_step_limit(train.nonfinite_step_limit() == 0 ? 3
                                                                   : train.nonfinite_step_limit());
  if (train.compute_dtype().empty()) {
    train.set_compute_dtype(defaults.compute_dtype);
  }
  if (train.attention().empty()) {
    train.set_attention("fast");
  }
  if (train.on_bad_row().empty()) {
    train.set_on_bad_row("error");
  }
  if (train.schedule().name().empty()) {
    train.mutable_schedule()->set_name("linear");
  }
  FillOptimizer(*train.mutable_optimizer());
}

void FillCheckpoint(v1::CheckpointOptions& checkpoint) {
  if (!checkpoint.has_every_minutes()) {
    checkpoint.set_every_minutes(checkpoint.every_steps() == 0 ? 30 : 0);
  }
  checkpoint.set_keep_last(checkpoint.keep_last() == 0 ? 2 : checkpoint.keep_last());
}

void FillDefaults(v1::TrainingSpec& spec, const SpecDefaults& defaults) {
  FillTrain(*spec.mutable_train(), defaults);
  if (spec.output().empty()) {
    spec.set_output(defaults.output);
  }
  if (spec.placement().order().empty()) {
    spec.mutable_placement()->set_order("auto");
  }
  if (spec.placement().pin().empty()) {
    spec.mutable_placement()->set_pin("auto");
  }
  if (spec.retry().max_attempts() == 0) {
    spec.mutable_retry()->set_max_attempts(3);
  }
  FillCheckpoint(*spec.mutable_checkpoint());
}

// Collects violations of fields below one path.
class Checker {
 public:
  Checker(std::string path, std::vector<FieldViolation>& violations)
      : path_(std::move(path)), violations_(violations) {}

  void Add(const std::string& field, const std::string& description) {
    violations_.push_back({path_ + "." + field, description});
  }

  void Range(const std::string& field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      Add(field, absl::StrCat(value, " is not within ", low, " and ", high));
    }
  }

  // Within [low, high), or [low, high] when `closed`; never NaN.
  void Real(const std::string& field, double value, double low, double high, bool closed) {
    if (!(value >= low && (closed ? value <= high : value < high))) {
      Add(field,
          absl::StrCat(value, " is not within ", low, " and ", high, closed ? "" : " (exclusive)"));
    }
  }

  void Positive(const std::string& field, double value) {
    if (!(value > 0 && std::isfinite(value))) {
      Add(field, absl::StrCat(value, " is not positive and finite"));
    }
  }

  void OneOf(const std::string& field, const std::string& value,
             const std::vector<std::string>& known) {
    for (const std::string& name : known) {
      if (name == value) {
        return;
      }
    }
    const std::string nearest = NearestName(value, known);
    Add(field,
        absl::StrCat("\"", value, "\" is not known: take one of ", absl::StrJoin(known, ", "),
                     nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)")));
  }

  void Name(const std::string& field, const std::string& value,
            const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      if (MatchResourceName(pattern, value).has_value()) {
        return;
      }
    }
    Add(field, value.empty() ? "is missing"
                             : absl::StrCat("\"", value, "\" is no name of the form ",
                                            absl::StrJoin(patterns, " or ")));
  }

 private:
  const std::string path_;
  std::vector<FieldViolation>& violations_;
};

void CheckLength(const v1::TrainOptions& train, bool for_plan, Checker& check) {
  if (train.epochs() != 0 && train.steps() != 0) {
    check.Add("epochs", "is set and steps too: set one of them");
  } else if (train.epochs() == 0 && train.steps() == 0 && !for_plan) {
    check.Add("epochs", "is missing: set it or steps");
  }
  check.Range("epochs", train.epochs(), 0, kMaxCount);
  check.Range("steps", train.steps(), 0, kMaxCount);
}

void CheckTrain(const v1::TrainOptions& train, Checker check) {
  check.Range("batch_rows", train.batch_rows(), 1, kMaxCount);
  check.Range("micro_batch_rows", train.micro_batch_rows(), 0, kMaxCount);
  check.Range("max_sequence_length", train.max_sequence_length(), 2, kMaxSequenceLength);
  check.OneOf("compute_dtype", train.compute_dtype(), {"fp32", "bf16"});
  check.OneOf("attention", train.attention(), {"fast", "deterministic"});
  check.Real("max_gradient_norm", train.max_gradient_norm(), 0, HUGE_VAL, /*closed=*/false);
  check.OneOf("on_bad_row", train.on_bad_row(), {"error", "skip"});
  check.Range("nonfinite_step_limit", train.nonfinite_step_limit(), 1, kMaxCount);
}

void CheckOptimizer(const v1::OptimizerOptions& optimizer, Checker check) {
  check.OneOf("name", optimizer.name(), {"adamw"});
  check.Positive("learning_rate", optimizer.learning_rate());
  check.Real("beta1", optimizer.beta1(), 0, 1, /*closed=*/false);
  check.Real("beta2", optimizer.beta2(), 0, 1, /*closed=*/false);
  check.Positive("epsilon", optimizer.epsilon());
  check.Real("weight_decay", optimizer.weight_decay(), 0, HUGE_VAL, /*closed=*/false);
}

void CheckSchedule(const v1::TrainOptions& train, Checker check) {
  const v1::ScheduleOptions& schedule = train.schedule();
  check.OneOf("name", schedule.name(), {"constant", "linear", "cosine"});
  check.Range("warmup_steps", schedule.warmup_steps(), 0, kMaxCount);
  if (train.steps() > 0 && schedule.warmup_steps() > train.steps()) {
    check.Add("warmup_steps", absl::StrCat(schedule.warmup_steps(), " is more than the ",
                                           train.steps(), " steps of the job"));
  }
  check.Real("floor_ratio", schedule.floor_ratio(), 0, 1, /*closed=*/true);
  if (schedule.floor_ratio() != 0 && schedule.name() != "cosine") {
    check.Add("floor_ratio", "has a meaning for cosine only");
  }
}

void CheckPlacement(const v1::PlacementOptions& placement, Checker check) {
  check.Range("hbm_limit_bytes", placement.hbm_limit_bytes(), 0, INT64_MAX);
  check.Range("host_limit_bytes", placement.host_limit_bytes(), 0, INT64_MAX);
  check.OneOf("order", placement.order(), {"auto", "layer_major", "micro_batch_major"});
  check.Range("weight_slot_count", placement.weight_slot_count(), 0, kMaxWeightSlots);
  check.OneOf("pin", placement.pin(), {"auto", "full", "slabs"});
}

void CheckCheckpoint(const v1::CheckpointOptions& checkpoint, Checker check) {
  check.Range("every_steps", checkpoint.every_steps(), 0, kMaxCount);
  check.Range("every_minutes", checkpoint.every_minutes(), 0, kMaxCount);
  check.Range("keep_last", checkpoint.keep_last(), 1, kMaxCount);
}

void CheckEvaluation(const v1::EvaluationOptions& evaluation, Checker check) {
  check.Real("split", evaluation.split(), 0, 1, /*closed=*/false);
  check.Range("every_steps", evaluation.every_steps(), 0, kMaxCount);
  check.Range("early_stopping_patience", evaluation.early_stopping_patience(), 0, kMaxCount);
  check.Real("early_stopping_min_delta", evaluation.early_stopping_min_delta(), 0, HUGE_VAL,
             /*closed=*/false);
  const bool has_rows = evaluation.split() > 0 || !evaluation.dataset().empty();
  if (!evaluation.dataset().empty()) {
    check.Name("dataset", evaluation.dataset(), {"datasets/*"});
    if (evaluation.split() > 0) {
      check.Add("dataset", "is set and split too: set one of them");
    }
  }
  if (!has_rows && evaluation.every_steps() > 0) {
    check.Add("every_steps", "needs rows to evaluate: set split or dataset");
  }
  if (evaluation.early_stopping_patience() > 0 && evaluation.every_steps() == 0) {
    check.Add("early_stopping_patience", "needs evaluations: set every_steps");
  }
}

}  // namespace

std::vector<FieldViolation> CompleteTrainingSpec(v1::TrainingSpec& spec,
                                                 const SpecDefaults& defaults, bool for_plan) {
  FillDefaults(spec, defaults);
  std::vector<FieldViolation> violations;
  Checker check("spec", violations);
  check.Name("model", spec.model(), {"models/*", "models/*/versions/*"});
  if (!for_plan || !spec.dataset().empty()) {
    check.Name("dataset", spec.dataset(), {"datasets/*"});
  }
  check.Name("output", spec.output(), {"models/*"});
  check.Range("priority", spec.priority(), -kMaxPriority, kMaxPriority);
  Checker check_train("spec.train", violations);
  CheckLength(spec.train(), for_plan, check_train);
  CheckTrain(spec.train(), check_train);
  CheckOptimizer(spec.train().optimizer(), Checker("spec.train.optimizer", violations));
  CheckSchedule(spec.train(), Checker("spec.train.schedule", violations));
  CheckPlacement(spec.placement(), Checker("spec.placement", violations));
  Checker("spec.retry", violations)
      .Range("max_attempts", spec.retry().max_attempts(), 1, kMaxAttempts);
  CheckCheckpoint(spec.checkpoint(), Checker("spec.checkpoint", violations));
  CheckEvaluation(spec.evaluation(), Checker("spec.evaluation", violations));
  return violations;
}

}  // namespace megatrain
