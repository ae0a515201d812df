#include "runtime/model_io/check_model.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/posix_file_system.h"
#include "runtime/model_io/model_folder_for_test.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PosixFileSystem file_system;

absl::Status StatusOf(const std::string& folder) {
  return CheckModelFolder(folder, file_system).status();
}

std::string MessageOf(const std::string& folder) { return std::string(StatusOf(folder).message()); }

const nlohmann::json& Config() {
  static const auto& config = *new nlohmann::json(TestConfig(/*tied=*/false));
  return config;
}

TestTensors Tensors() { return RandomTensors(Config(), TensorDtype::kBf16, 1); }

TEST(CheckModelTest, SumsUpAGoodFolder) {
  for (int shards : {1, 3}) {
    auto summary =
        CheckModelFolder(WriteModelFolder("good", Config(), Tensors(), shards), file_system);
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_TRUE(summary->trainable) << summary->untrainable_reason;
    EXPECT_EQ(summary->config.architecture, "LlamaForCausalLM");
    EXPECT_EQ(summary->parameter_count, 2 * 96 * 32 + 32 + 2 * (2 * 32 + 3840 + 3 * 80 * 32));
    EXPECT_EQ(summary->weight_bytes, 2 * summary->parameter_count);
  }
}

TEST(CheckModelTest, AShapeThatCannotBeTrainedIsNoError) {
  nlohmann::json config = Config();
  config["attention_bias"] = true;
  auto summary = CheckModelFolder(WriteModelFolder("bias", config, Tensors()), file_system);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_FALSE(summary->trainable);
  EXPECT_THAT(summary->untrainable_reason, HasSubstr("attention_bias"));
}

TEST(CheckModelTest, NamesWhatIsAbsent) {
  EXPECT_EQ(StatusOf("/nowhere/at/all").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf("/nowhere/at/all"), HasSubstr("/nowhere/at/all"));
  const std::string folder = WriteModelFolder("absent", Config(), Tensors());
  std::filesystem::remove(folder + "/model.safetensors");
  WriteTextFile(folder + "/pytorch_model.bin", "pickle");
  EXPECT_THAT(MessageOf(folder), HasSubstr("convert them to safetensors"));
  std::filesystem::remove(folder + "/config.json");
  EXPECT_THAT(MessageOf(folder), HasSubstr("no config.json"));
}

TEST(CheckModelTest, NamesTensorsThatAreMissingUnexpectedOrOfAnotherShape) {
  TestTensors tensors = Tensors();
  tensors.erase("model.norm.weight");
  EXPECT_THAT(MessageOf(WriteModelFolder("missing", Config(), tensors)),
              HasSubstr("missing: model.norm.weight"));
  tensors = Tensors();
  tensors["model.layers.2.mlp.up_proj.weight"] = tensors["model.norm.weight"];
  EXPECT_THAT(MessageOf(WriteModelFolder("unexpected", Config(), tensors)),
              HasSubstr("does not ask for: model.layers.2.mlp.up_proj.weight"));
  tensors = Tensors();
  tensors["model.norm.weight"].shape = {16, 2};
  EXPECT_THAT(MessageOf(WriteModelFolder("shape", Config(), tensors)),
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("[16, 2]"), HasSubstr("[32]")));
  tensors = Tensors();
  tensors["model.norm.weight"].dtype = TensorDtype::kI16;
  EXPECT_THAT(MessageOf(WriteModelFolder("dtype", Config(), tensors)),
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("I16")));
}

TEST(CheckModelTest, RotaryFrequenciesOfOldFilesAreCarriedAlong) {
  TestTensors tensors = Tensors();
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      TensorDtype::kF32, {5}, std::string(20, '\0')};
  EXPECT_TRUE(StatusOf(WriteModelFolder("inv_freq", Config(), tensors)).ok());
}

TEST(CheckModelTest, TieIsDecidedByConfigAndFile) {
  TestTensors tensors = Tensors();
  tensors.erase("lm_head.weight");
  EXPECT_THAT(MessageOf(WriteModelFolder("untied_without_head", Config(), tensors)),
              AllOf(HasSubstr("tie_word_embeddings = false"), HasSubstr("no lm_head.weight")));
  const nlohmann::json tied = TestConfig(/*tied=*/true);
  EXPECT_TRUE(StatusOf(WriteModelFolder("tied", tied, tensors)).ok());
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  EXPECT_TRUE(StatusOf(WriteModelFolder("tied_twice", tied, tensors)).ok());
  tensors["lm_head.weight"].bytes.back() ^= 1;
  const absl::Status status = StatusOf(WriteModelFolder("tied_but_different", tied, tensors));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("set it to false to train both"), HasSubstr("or remove")));
}

TEST(CheckModelTest, IndexAndFilesMustAgree) {
  const std::string folder = WriteModelFolder("index", Config(), Tensors(), 2);
  const std::string path = folder + "/model.safetensors.index.json";
  const nlohmann::json good = nlohmann::json::parse(ReadWholeFile(path));
  nlohmann::json index = good;
  index["weight_map"].erase("model.norm.weight");
  WriteTextFile(path, index.dump());
  EXPECT_THAT(MessageOf(folder), AllOf(HasSubstr("does not say"), HasSubstr("model.norm.weight")));
  index = good;
  index["weight_map"]["ghost"] = index["weight_map"]["model.norm.weight"];
  WriteTextFile(path, index.dump());
  EXPECT_THAT(MessageOf(folder), AllOf(HasSubstr("\"ghost\""), HasSubstr("but it does not")));
  index = good;
  index["weight_map"]["model.norm.weight"] = "model-9.safetensors";
  WriteTextFile(path, index.dump());
  EXPECT_FALSE(StatusOf(folder).ok());
  index["weight_map"]["model.norm.weight"] = "../outside.safetensors";
  WriteTextFile(path, index.dump());
  EXPECT_THAT(MessageOf(folder), HasSubstr("../outside.safetensors"));
}

TEST(CheckModelTest, ATruncatedFileIsNamedWithBothSizes) {
  const std::string folder = WriteModelFolder("cut", Config(), Tensors());
  const std::string path = folder + "/model.safetensors";
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size / 2);
  EXPECT_EQ(StatusOf(folder).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(folder), AllOf(HasSubstr(path), HasSubstr(std::to_string(size)),
                                       HasSubstr(std::to_string(size / 2))));
}

}  // namespace
}  // namespace megatrain
