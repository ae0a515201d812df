#include "server/jobs/fork.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

class Comparison {
 public:
  explicit Comparison(std::vector<FieldViolation>& violations) : violations_(violations) {}

  template <typename T>
  void Same(const std::string& field, const T& value, const T& wanted) {
    if (value != wanted) {
      violations_.push_back(
          {absl::StrCat("spec.", field),
           absl::StrCat("\"", value, "\" is not what the checkpoint was trained with, \"", wanted,
                        "\"")});
    }
  }

 private:
  std::vector<FieldViolation>& violations_;
};

}  // namespace

v1::TrainingSpec DefaultForkSpec(v1::TrainingSpec source) {
  source.clear_output();
  return source;
}

std::vector<FieldViolation> CheckFork(const v1::TrainingSpec& spec, const ForkOrigin& origin) {
  const v1::TrainingSpec& source = origin.spec;
  std::vector<FieldViolation> violations;
  Comparison comparison(violations);
  comparison.Same("model", spec.model(), source.model());
  if (origin.mode == v1::FORK_MODE_WEIGHTS) {
    return violations;
  }
  const v1::TrainOptions& train = spec.train();
  const v1::TrainOptions& old_train = source.train();
  comparison.Same("dataset", spec.dataset(), source.dataset());
  comparison.Same("evaluation.split", spec.evaluation().split(), source.evaluation().split());
  comparison.Same("evaluation.dataset", spec.evaluation().dataset(), source.evaluation().dataset());
  comparison.Same("train.seed", train.seed(), old_train.seed());
  comparison.Same("train.batch_rows", train.batch_rows(), old_train.batch_rows());
  if (train.micro_batch_rows() != 0) {  // else it is as it was
    comparison.Same("train.micro_batch_rows", train.micro_batch_rows(), origin.micro_batch_rows);
  }
  comparison.Same("train.max_sequence_length", train.max_sequence_length(),
                  old_train.max_sequence_length());
  comparison.Same("train.packing", train.packing(), old_train.packing());
  comparison.Same("train.compute_dtype", train.compute_dtype(), old_train.compute_dtype());
  comparison.Same("train.on_bad_row", train.on_bad_row(), old_train.on_bad_row());
  if (train.steps() != 0 && train.steps() < origin.checkpoint.step()) {
    violations.push_back(
        {"spec.train.steps", absl::StrCat("is ", train.steps(), ", and the checkpoint has done ",
                                          origin.checkpoint.step(), " steps already")});
  }
  return violations;
}

}  // namespace megatrain
