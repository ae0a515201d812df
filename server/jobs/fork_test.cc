#include "server/jobs/fork.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

v1::TrainingSpec Source() {
  v1::TrainingSpec spec;
  spec.set_model("models/a/versions/1");
  spec.set_dataset("datasets/d");
  spec.set_output("models/b");
  spec.mutable_train()->set_batch_rows(8);
  spec.mutable_train()->set_steps(10);
  return spec;
}

ForkOrigin Origin(v1::ForkMode mode) {
  ForkOrigin origin{.spec = Source(), .mode = mode, .micro_batch_rows = 8};
  origin.checkpoint.set_step(6);
  return origin;
}

TEST(ForkTest, AForkHasAnOutputOfItsOwn) {
  EXPECT_EQ(DefaultForkSpec(Source()).output(), "");
  EXPECT_EQ(DefaultForkSpec(Source()).train().steps(), 10);
}

TEST(ForkTest, AFullStateKeepsTheOrderOfRows) {
  v1::TrainingSpec spec = Source();
  spec.mutable_train()->set_steps(20);
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(1);
  EXPECT_TRUE(CheckFork(spec, Origin(v1::FORK_MODE_FULL_STATE)).empty());
  spec.mutable_train()->set_batch_rows(4);
  spec.set_dataset("datasets/other");
  const auto violations = CheckFork(spec, Origin(v1::FORK_MODE_FULL_STATE));
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "spec.dataset");
  EXPECT_EQ(violations[1].field, "spec.train.batch_rows");
}

TEST(ForkTest, AFullStateKeepsTheBitsOfAStepAndTheStepsDone) {
  v1::TrainingSpec spec = Source();
  spec.mutable_train()->set_micro_batch_rows(8);
  spec.mutable_train()->set_steps(6);
  EXPECT_TRUE(CheckFork(spec, Origin(v1::FORK_MODE_FULL_STATE)).empty());
  spec.mutable_train()->set_micro_batch_rows(4);
  spec.mutable_train()->set_steps(5);
  const auto violations = CheckFork(spec, Origin(v1::FORK_MODE_FULL_STATE));
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "spec.train.micro_batch_rows");
  EXPECT_EQ(violations[1].field, "spec.train.steps");
}

TEST(ForkTest, WeightsBelongToAModelOnly) {
  v1::TrainingSpec spec = Source();
  spec.mutable_train()->set_batch_rows(4);
  spec.mutable_train()->set_micro_batch_rows(4);
  spec.mutable_train()->set_steps(5);
  spec.set_dataset("datasets/other");
  EXPECT_TRUE(CheckFork(spec, Origin(v1::FORK_MODE_WEIGHTS)).empty());
  spec.set_model("models/other/versions/1");
  EXPECT_EQ(CheckFork(spec, Origin(v1::FORK_MODE_WEIGHTS)).size(), 1u);
}

}  // namespace
}  // namespace megatrain
