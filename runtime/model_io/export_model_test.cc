#include "runtime/model_io/export_model.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model_io/load_model.h"
#include "runtime/model_io/model_folder_for_test.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

PosixFileSystem posix;

struct Model {
  std::unique_ptr<ModelFolder> folder;
  ModelLayout layout;
  std::unique_ptr<HostStore> store;
};

Model Load(const std::string& path) {
  auto folder = ModelFolder::Open(path, posix);
  EXPECT_TRUE(folder.ok()) << folder.status();
  Model model = {*std::move(folder), {}, nullptr};
  model.layout = MakeModelLayout(model.folder->config());
  auto store = HostStore::Create(model.layout, {.protect_idle_units = true});
  EXPECT_TRUE(store.ok()) << store.status();
  model.store = *std::move(store);
  const absl::Status status = LoadModel(*model.folder, model.layout, *model.store);
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

std::string OutputPath() {
  const std::string path = ::testing::TempDir() + "/exports/out";
  EXPECT_TRUE(posix.RemoveTree(::testing::TempDir() + "/exports").ok());
  return path;
}

absl::Status Export(const Model& model, const std::string& output, FileSystem& file_system) {
  return ExportModel(*model.folder, model.layout, *model.store, output, file_system);
}

// Every file of the source, in the same bytes, and no other.
void ExpectSameFolders(const std::string& source, const std::string& output) {
  const std::vector<std::string> names = *posix.ListFolder(source);
  EXPECT_EQ(names, *posix.ListFolder(output));
  for (const std::string& name : names) {
    EXPECT_EQ(ReadWholeFile(source + "/" + name), ReadWholeFile(output + "/" + name)) << name;
  }
}

TEST(ExportModelTest, AnUntouchedModelComesOutInTheSameBytes) {
  for (TensorDtype dtype : {TensorDtype::kBf16, TensorDtype::kF32, TensorDtype::kF16}) {
    for (bool tied : {false, true}) {
      for (int shards : {1, 3}) {
        const nlohmann::json config = TestConfig(tied);
        const std::string source =
            WriteModelFolder("source", config, RandomTensors(config, dtype, 5), shards);
        const Model model = Load(source);
        const std::string output = OutputPath();
        const absl::Status status = Export(model, output + "/", posix);
        ASSERT_TRUE(status.ok()) << status;
        ExpectSameFolders(source, output);
      }
    }
  }
}

TEST(ExportModelTest, KeepsTheSourcesTieConventionAndForeignTensors) {
  const nlohmann::json config = TestConfig(/*tied=*/true);
  TestTensors tensors = RandomTensors(config, TensorDtype::kBf16, 5);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      TensorDtype::kF32, {5}, "abcdefghijklmnopqrst"};
  const std::string source = WriteModelFolder("both", config, tensors);
  Model model = Load(source);
  const std::string output = OutputPath();
  ASSERT_TRUE(Export(model, output, posix).ok());
  ExpectSameFolders(source, output);
  {
    const auto access = model.store->BeginAccess(0);
    model.store->hi(0)[3] = Split(2.5f).hi;
    model.store->lo(0)[3] = 0;
  }
  const std::string trained = OutputPath();
  ASSERT_TRUE(Export(model, trained, posix).ok());
  const Model again = Load(trained);  // refuses if table and output matrix differ
  const auto access = again.store->BeginAccess(0);
  EXPECT_EQ(JoinFloat(again.store->hi(0)[3], again.store->lo(0)[3]), 2.5f);
}

TEST(ExportModelTest, RoundsTheMasterToTheSourcesDtype) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("rounds", config, RandomTensors(config, TensorDtype::kBf16, 5));
  Model model = Load(source);
  const float master = 1.0f + 0x1.8p-8f;  // nearer to 1 + 2^-7 than to 1
  {
    const auto access = model.store->BeginAccess(1);
    model.store->hi(1)[0] = Split(master).hi;
    model.store->lo(1)[0] = Split(master).lo;
  }
  const std::string output = OutputPath();
  ASSERT_TRUE(Export(model, output, posix).ok());
  const Model again = Load(output);
  const auto access = again.store->BeginAccess(1);
  EXPECT_EQ(JoinFloat(again.store->hi(1)[0], again.store->lo(1)[0]), 1.0f + 0x1p-7f);
}

TEST(ExportModelTest, CopiesWhatBelongsToTheModelAndNothingElse) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("files", config, RandomTensors(config, TensorDtype::kBf16, 5));
  const std::string copied[] = {
      "generation_config.json",  "tokenizer.json", "tokenizer_config.json",
      "chat_template.jinja",     "merges.txt",     "tokenizer.model",
      "special_tokens_map.json", "LICENSE"};
  for (const std::string& name : copied) {
    WriteTextFile(source + "/" + name, "the text of " + name);
  }
  WriteTextFile(source + "/tokenizer.json", std::string(9 << 20, 'x'));
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "modeling.py",
                           "README.md", ".gitattributes", "old.safetensors"}) {
    WriteTextFile(source + "/" + name, "not to be copied");
  }
  std::filesystem::create_directories(source + "/additional_chat_templates");
  std::filesystem::create_directories(source + "/folder.json");
  WriteTextFile(source + "/additional_chat_templates/tool.jinja", "a template");
  const Model model = Load(source);
  const std::string output = OutputPath();
  const absl::Status status = Export(model, output, posix);
  ASSERT_TRUE(status.ok()) << status;
  for (const std::string& name : copied) {
    EXPECT_EQ(ReadWholeFile(source + "/" + name), ReadWholeFile(output + "/" + name)) << name;
  }
  EXPECT_EQ(ReadWholeFile(output + "/additional_chat_templates/tool.jinja"), "a template");
  // config.json, model.safetensors and the templates' folder beside the copied ones.
  EXPECT_EQ(posix.ListFolder(output)->size(), std::size(copied) + 3);
}

TEST(ExportModelTest, TheIndexCoversEveryTensorOnceWithTheRightTotal) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("total", config, RandomTensors(config, TensorDtype::kBf16, 5), 2);
  const std::string index_name = "/model.safetensors.index.json";
  nlohmann::json wrong = nlohmann::json::parse(ReadWholeFile(source + index_name));
  wrong["metadata"]["total_size"] = 1;
  WriteTextFile(source + index_name, wrong.dump());
  const Model model = Load(source);
  const std::string output = OutputPath();
  ASSERT_TRUE(Export(model, output, posix).ok());
  const nlohmann::json index = nlohmann::json::parse(ReadWholeFile(output + index_name));
  EXPECT_EQ(index["metadata"]["total_size"], 2 * model.folder->config().ParameterCount());
  EXPECT_EQ(index["weight_map"], wrong["weight_map"]);
}

TEST(ExportModelTest, AFullDiskLeavesNothingBehind) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("full", config, RandomTensors(config, TensorDtype::kBf16, 5), 2);
  const Model model = Load(source);
  const int64_t whole_bytes = model.folder->WeightBytes() + 8000;
  int64_t failures = 0;
  for (int64_t room = 0; room < whole_bytes; room += whole_bytes / 23) {
    const std::string output = OutputPath();
    ASSERT_TRUE(posix.MakeFolders(::testing::TempDir() + "/exports").ok());
    FaultyFileSystem disk(&posix);
    disk.FillAfter(room);
    const absl::Status status = Export(model, output, disk);
    if (status.ok()) {
      continue;
    }
    ++failures;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(*posix.ListFolder(::testing::TempDir() + "/exports"), IsEmpty()) << room;
  }
  EXPECT_GT(failures, 15);
}

// A disk that refuses once: also to sync the name that is in place by then.
TEST(ExportModelTest, AFailedExportCanBeTriedAgain) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("twice", config, RandomTensors(config, TensorDtype::kBf16, 5));
  const Model model = Load(source);
  const std::string output = OutputPath();
  FaultyFileSystem disk(&posix);
  disk.FailAt(int64_t{1} << 40, FaultyFileSystem::Fault::kBroken);  // counts
  ASSERT_TRUE(Export(model, output, disk).ok());
  const int64_t operations = disk.operation_count();
  for (int64_t operation = 0; operation < operations; ++operation) {
    ASSERT_TRUE(posix.RemoveTree(output).ok());
    disk.FailAt(operation, FaultyFileSystem::Fault::kBroken);
    if (Export(model, output, disk).ok()) {
      continue;  // it only removed what was not there
    }
    disk.Repair();
    const absl::Status again = Export(model, output, disk);
    ASSERT_TRUE(again.ok()) << operation << ": " << again;
    ExpectSameFolders(source, output);
  }
}

TEST(ExportModelTest, AFaultWhileWritingLeavesNothingBehind) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("fault", config, RandomTensors(config, TensorDtype::kBf16, 5));
  Model model = Load(source);
  {
    const auto access = model.store->BeginAccess(3);
    const SplitFloat bad = Split(std::numeric_limits<float>::infinity());
    model.store->hi(3)[1] = bad.hi;
    model.store->lo(3)[1] = bad.lo;
  }
  const std::string output = OutputPath();
  const absl::Status status = Export(model, output, posix);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"model.norm.weight\": element 1"));
  EXPECT_THAT(*posix.ListFolder(::testing::TempDir() + "/exports"), IsEmpty());
}

TEST(ExportModelTest, RefusesToOverwriteAndClearsWhatACrashLeft) {
  const nlohmann::json config = TestConfig(false);
  const std::string source =
      WriteModelFolder("again", config, RandomTensors(config, TensorDtype::kBf16, 5));
  const Model model = Load(source);
  const std::string output = OutputPath();
  ASSERT_TRUE(posix.MakeFolders(output + ".partial").ok());
  WriteTextFile(output + ".partial/rest.json", "of a crash");
  ASSERT_TRUE(Export(model, output, posix).ok());
  ExpectSameFolders(source, output);
  EXPECT_FALSE(posix.Exists(output + ".partial"));
  EXPECT_EQ(Export(model, output, posix).code(), absl::StatusCode::kAlreadyExists);
  ExpectSameFolders(source, output);
  EXPECT_EQ(Export(model, "", posix).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
