#include "runtime/kernels/matmul_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

const MatmulMachine kMachine{"NVIDIA H200", 130200};

// All fields differ from one another, and from other sizes' problems.
MatmulProblem Problem(int64_t size) {
  return {.m = size,
          .n = size + 1,
          .k = size + 2,
          .transpose_a = true,
          .transpose_b = false,
          .lda = size + 3,
          .ldb = size + 4,
          .ldc = size + 5,
          .ldd = size + 6,
          .input_dtype = ComputeDtype::kBfloat16,
          .output_dtype = ComputeDtype::kFloat32,
          .has_bias = true};
}

MatmulSample Large(int64_t size) { return {absl::StrCat("large ", size), Problem(size), false}; }

std::string ErrorOf(const std::string& text) {
  return std::string(ParseMatmulChoices(text, kMachine).status().message());
}

// The text of one entry, with `from` replaced by `to`.
std::string Edited(const std::string& from, const std::string& to) {
  std::string text = ToJson({{Problem(4096), 2}}, kMachine);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return text.replace(at, from.size(), to);
}

MatmulProblem WithTokens(MatmulProblem problem, int64_t tokens) {
  (problem.transpose_b ? problem.k : problem.n) = tokens;
  return problem;
}

TEST(FindMatmulChoice, TakesTheNextLargerNumberOfTokens) {
  MatmulProblem gradient = Problem(4096);
  gradient.transpose_b = true;
  for (const MatmulProblem& base : {Problem(4096), gradient}) {
    const MatmulChoices choices = {{WithTokens(base, 8192), 1},
                                   {WithTokens(base, 1024), 2},
                                   {WithTokens(base, 4096), 3},
                                   {WithTokens(Problem(512), 2000), 4}};
    const auto place_of = [&](int64_t tokens) {
      const auto* found = FindMatmulChoice(choices, WithTokens(base, tokens));
      return found == nullptr ? -1 : found->second;
    };
    EXPECT_EQ(place_of(8192), 1);
    EXPECT_EQ(place_of(8193), -1);
    EXPECT_EQ(place_of(4097), 1);
    EXPECT_EQ(place_of(4096), 3);
    EXPECT_EQ(place_of(4095), 3);
    EXPECT_EQ(place_of(2048), 3);
    EXPECT_EQ(place_of(2047), -1) << "less than half of 4,096, more than 1,024";
    EXPECT_EQ(place_of(600), 2);
    EXPECT_EQ(place_of(1), -1);
  }
}

TEST(FindMatmulChoice, AnotherProductsAlgorithmIsNotTaken) {
  MatmulProblem other = Problem(4096);
  other.has_bias = false;
  EXPECT_EQ(FindMatmulChoice({{other, 1}}, Problem(4096)), nullptr);
  other = Problem(4096);
  other.ldd += 8;
  EXPECT_EQ(FindMatmulChoice({{other, 1}}, Problem(4096)), nullptr);
  EXPECT_EQ(FindMatmulChoice({}, Problem(4096)), nullptr);
}

class MatmulChoicesFileTest : public testing::Test {
 protected:
  MatmulChoicesFileTest()
      : folder_(testing::TempDir() + "/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(folder_ + "/machine/choices.json"),
        file_(files_, path_, kMachine) {
    std::filesystem::remove_all(folder_);
  }

  // Chooses 3 for everything, and remembers what it was asked for.
  MatmulChoicesFile::Measure Measure() {
    return [this](const std::vector<MatmulSample>& samples) -> absl::StatusOr<MatmulChoices> {
      MatmulChoices choices;
      for (const MatmulSample& sample : samples) {
        asked_.push_back(sample.name);
        choices[sample.problem] = 3;
      }
      return choices;
    };
  }

  void Write(const std::string& text) {
    std::filesystem::create_directories(folder_ + "/machine");
    std::ofstream(path_) << text;
  }

  const std::string folder_;
  const std::string path_;
  PosixFileSystem files_;
  MatmulChoicesFile file_;
  std::vector<std::string> asked_;
};

TEST(MatmulChoices, TheFirstIsGivenUpForMoreThanHalfAPercentOnly) {
  EXPECT_EQ(ChooseMatmul({1.0}), 0);
  EXPECT_EQ(ChooseMatmul({1.0, 0.996, 1.2}), 0);
  EXPECT_EQ(ChooseMatmul({1.0, 0.994, 1.2}), 1);
  EXPECT_EQ(ChooseMatmul({1.0, 0.98, 0.97, 1.1}), 2);
  EXPECT_EQ(ChooseMatmul({1.0, 1.0, 1.0}), 0);
}

TEST(MatmulChoices, JsonHoldsEveryFieldOfAProblem) {
  MatmulProblem other = Problem(4096);
  other.transpose_a = false;
  other.transpose_b = true;
  other.input_dtype = ComputeDtype::kFloat32;
  other.output_dtype = ComputeDtype::kBfloat16;
  other.has_bias = false;
  const MatmulChoices choices = {{Problem(4096), 2}, {other, 7}, {Problem(1), 0}};
  const auto read = ParseMatmulChoices(ToJson(choices, kMachine), kMachine);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, choices);
}

TEST(MatmulChoices, AnotherMachinesAreRefused) {
  const std::string text = ToJson({{Problem(4096), 2}}, kMachine);
  for (const MatmulMachine& other :
       {MatmulMachine{"NVIDIA H100", 130200}, MatmulMachine{"NVIDIA H200", 130300}}) {
    EXPECT_EQ(ParseMatmulChoices(text, other).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(MatmulChoices, WhoWaitsIsToldHowMany) {
  EXPECT_THAT(DescribeMeasurement({Large(4096)}), HasSubstr("1 matrix product, about a second"));
  EXPECT_THAT(DescribeMeasurement({Large(2048), Large(4096), Large(8192)}),
              HasSubstr("3 matrix products, about a second each"));
}

TEST(MatmulChoices, BrokenTextIsRefusedAsAWhole) {
  EXPECT_EQ(ErrorOf(Edited("\"index\":2", "\"index\":2")), "");
  EXPECT_THAT(ErrorOf(""), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("choices"));
  EXPECT_THAT(ErrorOf(R"({"choices": []})"), HasSubstr("gpu"));
  EXPECT_THAT(ErrorOf(R"({"choices": [], "gpu": 3, "cublaslt_version": 130200})"),
              HasSubstr("gpu"));
  EXPECT_THAT(ErrorOf(R"({"choices": {}, "gpu": "NVIDIA H200", "cublaslt_version": 130200})"),
              HasSubstr("choices"));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"index\":2", "\"index\":16"},
           {"\"index\":2", "\"index\":-1"},
           {"\"index\":2", "\"index\":2.0"},
           {"\"index\":2", "\"place\":2"},
           {"\"index\":2", "\"index\":2,\"more\":1"},
           {"\"m\":4096", "\"m\":0"},
           {"\"m\":4096", "\"m\":18446744073709551615"},
           {"\"m\":4096", "\"m\":\"4096\""},
           {"\"bias\":true", "\"bias\":1"},
           {"\"bf16\"", "\"fp16\""},
           {"\"bf16\"", "16"}}) {
    EXPECT_THAT(ErrorOf(Edited(from, to)), HasSubstr("entry 0")) << to;
  }
  const std::string one = ToJson({{Problem(4096), 2}}, kMachine);
  const std::string entry = one.substr(one.find("[{") + 1, one.find("}]") - one.find("[{"));
  EXPECT_THAT(ErrorOf(Edited(entry, entry + "," + entry)), HasSubstr("entry 1"));
}

TEST_F(MatmulChoicesFileTest, LoadsWhatItSaved) {
  EXPECT_EQ(file_.Load().status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(file_.Save({{Problem(4096), 2}}), absl::OkStatus());
  ASSERT_EQ(file_.Save({{Problem(4096), 5}}), absl::OkStatus());
  const auto loaded = file_.Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, (MatmulChoices{{Problem(4096), 5}}));
  EXPECT_FALSE(files_.Exists(path_ + ".partial"));
}

TEST_F(MatmulChoicesFileTest, MeasuresWhatIsMissingOnceAndKeepsIt) {
  const auto first = file_.Complete({Large(4096), Large(4096)}, Measure());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, (MatmulChoices{{Problem(4096), 3}}));
  ASSERT_TRUE(file_.Complete({Large(4096)}, Measure()).ok());
  const auto second = file_.Complete({Large(8192), Large(4096)}, Measure());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, (MatmulChoices{{Problem(4096), 3}, {Problem(8192), 3}}));
  EXPECT_THAT(asked_, testing::ElementsAre("large 4096", "large 8192"));
  EXPECT_EQ(*file_.Load(), *second);
}

TEST_F(MatmulChoicesFileTest, SmallProductsAreNotMeasured) {
  const auto choices = file_.Complete({Large(512)}, Measure());
  ASSERT_TRUE(choices.ok()) << choices.status();
  EXPECT_TRUE(choices->empty());
  EXPECT_TRUE(asked_.empty());
  EXPECT_FALSE(files_.Exists(path_));
}

TEST_F(MatmulChoicesFileTest, ABrokenOrForeignFileIsMeasuredAgain) {
  for (const std::string& text :
       {std::string("{"), ToJson({{Problem(4096), 1}, {Problem(8192), 1}}, {"other", 1}),
        std::string(5 << 20, ' ')}) {
    Write(text);
    asked_.clear();
    const auto choices = file_.Complete({Large(4096)}, Measure());
    ASSERT_TRUE(choices.ok()) << choices.status();
    EXPECT_THAT(asked_, testing::ElementsAre("large 4096"));
    EXPECT_EQ(*file_.Load(), (MatmulChoices{{Problem(4096), 3}}));
  }
}

TEST_F(MatmulChoicesFileTest, AFullDiskLeavesTheFile) {
  ASSERT_EQ(file_.Save({{Problem(4096), 2}}), absl::OkStatus());
  FaultyFileSystem full(&files_);
  full.FillAfter(20);
  const auto choices = MatmulChoicesFile(full, path_, kMachine).Complete({Large(8192)}, Measure());
  EXPECT_EQ(choices.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*file_.Load(), (MatmulChoices{{Problem(4096), 2}}));
}

TEST_F(MatmulChoicesFileTest, AFailedMeasurementLeavesTheFile) {
  ASSERT_EQ(file_.Save({{Problem(4096), 2}}), absl::OkStatus());
  const auto failed = file_.Complete({Large(8192)}, [](const std::vector<MatmulSample>&) {
    return absl::ResourceExhaustedError("no memory");
  });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*file_.Load(), (MatmulChoices{{Problem(4096), 2}}));
}

}  // namespace
}  // namespace megatrain
