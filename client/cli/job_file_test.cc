#include "client/cli/job_file.h"

#include <fstream>

#include "client/cli/yaml_message.h"
#include "client/lib/error_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

absl::StatusOr<v1::CreateJobRequest> Read(const std::string& text,
                                          const std::vector<std::string>& settings = {}) {
  const std::string path = ::testing::TempDir() + "/job.yaml";
  std::ofstream(path) << text;
  return ReadJobFile(path, settings);
}

// What the error says, after the file's folder.
std::string ErrorOf(const std::string& text, const std::vector<std::string>& settings = {}) {
  const absl::Status status = Read(text, settings).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  const ErrorText error = DescribeError(status);
  const size_t file = error.what.find("job.yaml");
  return (file == std::string::npos ? error.what : error.what.substr(file)) +
         (error.hint.empty() ? "" : " | " + error.hint);
}

constexpr char kWholeFile[] = R"(
model: models/smollm2-135m-instruct
dataset: datasets/addition
display_name: addition
labels: {team: a, year: 2026}
train:
  epochs: 1
  batch_rows: 8
  max_sequence_length: 1024
  packing: false
  seed: 0
  compute_dtype: fp32                        # bf16
  optimizer: {name: adamw, learning_rate: 1e-4, beta1: 0.9, beta2: 0.95, epsilon: 1e-8,
              weight_decay: 0.0}
  schedule: {name: linear, warmup_steps: 6}
  max_gradient_norm: 1.0                     # 0: off
output: models/addition-tuned
placement: {hbm_limit: 0, host_limit: 64GiB}
)";

TEST(JobFileTest, ReadsEveryKey) {
  const auto request = Read(kWholeFile);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->display_name(), "addition");
  EXPECT_THAT(request->labels(), UnorderedElementsAre(Pair("team", "a"), Pair("year", "2026")));
  const v1::TrainingSpec& spec = request->spec();
  EXPECT_EQ(spec.model(), "models/smollm2-135m-instruct");
  EXPECT_EQ(spec.dataset(), "datasets/addition");
  EXPECT_EQ(spec.output(), "models/addition-tuned");
  EXPECT_EQ(spec.train().epochs(), 1);
  EXPECT_EQ(spec.train().steps(), 0);
  EXPECT_EQ(spec.train().batch_rows(), 8);
  EXPECT_EQ(spec.train().compute_dtype(), "fp32");
  EXPECT_EQ(spec.train().optimizer().learning_rate(), 1e-4);
  EXPECT_TRUE(spec.train().optimizer().has_weight_decay()) << "0 is set, not the default";
  EXPECT_EQ(spec.train().schedule().warmup_steps(), 6);
  EXPECT_EQ(spec.train().max_gradient_norm(), 1.0);
  EXPECT_EQ(spec.placement().host_limit_bytes(), int64_t{64} << 30);
}

TEST(JobFileTest, AVersionStandsAfterTheAt) {
  EXPECT_EQ(Read("model: models/a@3")->spec().model(), "models/a/versions/3");
  EXPECT_EQ(Read("model: models/a")->spec().model(), "models/a");
}

TEST(JobFileTest, AnUnknownKeyNamesLineAndNearestKey) {
  EXPECT_EQ(ErrorOf("model: models/a\ntrain:\n  stpes: 3\n"),
            "job.yaml:3: unknown key train.stpes | train.steps, the nearest known key");
  EXPECT_EQ(ErrorOf("modle: models/a\n"),
            "job.yaml:1: unknown key modle | model, the nearest known key");
  EXPECT_THAT(ErrorOf("placement: {hbm_limit_bytes: 3}"),
              HasSubstr("one of hbm_limit, host_limit, order"));
}

TEST(JobFileTest, AKeyNearNothingListsTheKnownOnes) {
  EXPECT_EQ(ErrorOf("retry: {unrelated: 1}"),
            "job.yaml:1: unknown key retry.unrelated | one of max_attempts");
}

TEST(JobFileTest, FieldsOfTheRequestAreNoKeys) {
  EXPECT_THAT(ErrorOf("request_id: x"), HasSubstr("unknown key request_id"));
  EXPECT_THAT(ErrorOf("spec: {model: models/a}"), HasSubstr("unknown key spec"));
}

TEST(JobFileTest, KeysOfLaterServersAreRefused) {
  EXPECT_EQ(ErrorOf("train:\n  batch_tokens: 65536"),
            "job.yaml:2: train.batch_tokens is not supported yet: take it out");
}

TEST(JobFileTest, CheckpointsAndEvaluation) {
  const auto request = Read(
      "checkpoint: {every_minutes: 0, keep_last: 3, at_end: true}\n"
      "evaluation: {split: 0.05, every_steps: 20, early_stopping_patience: 5}");
  ASSERT_TRUE(request.ok()) << request.status();
  const v1::TrainingSpec& spec = request->spec();
  EXPECT_TRUE(spec.checkpoint().has_every_minutes()) << "0 is set, not the default";
  EXPECT_EQ(spec.checkpoint().keep_last(), 3);
  EXPECT_TRUE(spec.checkpoint().at_end());
  EXPECT_EQ(spec.evaluation().split(), 0.05);
  EXPECT_EQ(spec.evaluation().every_steps(), 20);
  EXPECT_EQ(spec.evaluation().early_stopping_patience(), 5);
  EXPECT_EQ(ErrorOf("validation: {split: 0.1}"),
            "job.yaml:1: unknown key validation | evaluation, the nearest known key");
  EXPECT_EQ(ErrorOf("checkpoint:\n  every_step: 5"),
            "job.yaml:2: unknown key checkpoint.every_step | checkpoint.every_steps, the nearest "
            "known key");
}

TEST(JobFileTest, ChangesKeepWhatTheyDoNotName) {
  v1::CreateJobRequest base;
  base.mutable_spec()->set_model("models/a");
  base.mutable_spec()->mutable_train()->set_epochs(3);
  base.mutable_spec()->mutable_train()->set_max_gradient_norm(1);
  base.mutable_spec()->mutable_evaluation()->set_split(0.1);
  const auto changed = ReadJobChanges(
      base, {"", {"train.steps=10", "train.max_gradient_norm=0", "evaluation.dataset=datasets/v"}});
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->spec().model(), "models/a");
  EXPECT_EQ(changed->spec().train().steps(), 10);
  EXPECT_EQ(changed->spec().train().epochs(), 0) << "steps take the place of epochs";
  EXPECT_EQ(changed->spec().train().max_gradient_norm(), 0);
  EXPECT_EQ(changed->spec().evaluation().split(), 0);
  const auto both = ReadJobChanges(base, {"", {"train.steps=10", "train.epochs=2"}});
  EXPECT_EQ(both->spec().train().steps(), 10) << "the server refuses it, with both numbers";
  EXPECT_EQ(both->spec().train().epochs(), 2);
}

TEST(JobFileTest, WrongTypesNameTheLine) {
  EXPECT_EQ(ErrorOf("train:\n  steps: many"),
            "job.yaml:2: train.steps wants a whole number, not \"many\"");
  EXPECT_EQ(ErrorOf("train:\n  steps: 1.5"),
            "job.yaml:2: train.steps wants a whole number, not \"1.5\"");
  EXPECT_EQ(ErrorOf("train:\n  steps: '3'"),
            "job.yaml:2: train.steps wants a whole number, not the text \"3\"");
  EXPECT_EQ(ErrorOf("train: {packing: yes}"),
            "job.yaml:1: train.packing wants true or false, not \"yes\"");
  EXPECT_EQ(ErrorOf("train: {optimizer: {learning_rate: .nan}}"),
            "job.yaml:1: train.optimizer.learning_rate wants a number, not \".nan\"");
  EXPECT_EQ(ErrorOf("train: {optimizer: adamw}"),
            "job.yaml:1: train.optimizer wants a mapping of keys and values");
  EXPECT_EQ(ErrorOf("model: [a, b]"), "job.yaml:1: model wants a text, not a list");
  EXPECT_EQ(ErrorOf("model:\ndataset: datasets/a"), "job.yaml:1: model wants a text, not nothing");
  EXPECT_EQ(ErrorOf("placement: {host_limit: big}"),
            "job.yaml:1: placement.host_limit wants a size, such as 64GiB, not \"big\"");
  EXPECT_EQ(ErrorOf("retry: {max_attempts: 3000000000}"),
            "job.yaml:1: retry.max_attempts wants a whole number, not \"3000000000\"");
}

TEST(JobFileTest, BrokenYamlNamesTheLine) {
  EXPECT_THAT(ErrorOf("model: models/a\n  train: {"), HasSubstr("job.yaml:2: "));
  EXPECT_THAT(ErrorOf("- a\n- b\n"), HasSubstr("wants a mapping"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("wants one document, has 0"));
  EXPECT_THAT(ErrorOf("model: a\n---\nmodel: b\n"), HasSubstr("wants one document, has 2"));
  EXPECT_THAT(ErrorOf("model: a\nmodel: b\n"), HasSubstr("job.yaml:2: model stands here twice"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("job.yaml:1: ")) << "no crash";
}

TEST(JobFileTest, AFileThatIsTooLargeOrAbsent) {
  EXPECT_THAT(ErrorOf(std::string((1 << 20) + 1, '#')), HasSubstr("is larger than"));
  EXPECT_EQ(ReadJobFile("/nowhere/job.yaml", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadJobFile(::testing::TempDir(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JobFileTest, SettingsAreLaidOverTheFile) {
  const auto request = Read(kWholeFile, {"train.epochs=0", "train.steps=10", "model=models/b@2",
                                         "train.optimizer.learning_rate=3e-4",
                                         "placement={hbm_limit: 1GB}", "labels.team=b"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->spec().train().steps(), 10);
  EXPECT_EQ(request->spec().train().batch_rows(), 8) << "what is not set stays";
  EXPECT_EQ(request->spec().train().optimizer().learning_rate(), 3e-4);
  EXPECT_EQ(request->spec().model(), "models/b/versions/2");
  EXPECT_EQ(request->spec().placement().hbm_limit_bytes(), 1'000'000'000);
  EXPECT_EQ(request->spec().placement().host_limit_bytes(), int64_t{64} << 30);
  EXPECT_EQ(request->labels().at("team"), "b");
}

TEST(JobFileTest, AWrongSettingIsNamed) {
  EXPECT_EQ(ErrorOf(kWholeFile, {"train.stpes=10"}),
            "--set train.stpes=10: unknown key train.stpes | train.steps, the nearest known key");
  EXPECT_EQ(ErrorOf(kWholeFile, {"train.steps"}),
            "--set train.steps: wants key=value, such as train.steps=10");
  EXPECT_EQ(ErrorOf(kWholeFile, {"train.steps=ten"}),
            "--set train.steps=ten: train.steps wants a whole number, not \"ten\"");
}

TEST(ParseSizeTest, KnowsItsUnits) {
  EXPECT_EQ(*ParseSize("0"), 0);
  EXPECT_EQ(*ParseSize("512"), 512);
  EXPECT_EQ(*ParseSize("1.5KiB"), 1536);
  EXPECT_EQ(*ParseSize("64 GiB"), int64_t{64} << 30);
  EXPECT_EQ(*ParseSize("1TB"), 1'000'000'000'000);
  for (const char* wrong : {"", "GiB", "-1GiB", "1gib", "1 GiB x", "1e400", "9999999TiB"}) {
    EXPECT_FALSE(ParseSize(wrong).ok()) << wrong;
  }
}

TEST(JobFileTest, TextThatIsNotUtf8IsRefusedWithItsLine) {
  EXPECT_THAT(ErrorOf("model: models/a\ndisplay_name: \xff\xfe\n"),
              AllOf(HasSubstr("job.yaml:2"), HasSubstr("UTF-8")));
  EXPECT_THAT(ErrorOf(kWholeFile, {"display_name=\xff"}), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace megatrain
