// Models with real files and a real database.

#include "server/models/model_store.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/model_io/model_folder_for_test.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A daemon's part that keeps models; closing and making it again is a restart.
class Service {
 public:
  explicit Service(const std::string& folder) {
    auto opened = Database::Open(folder + "/db", {RequestLogMigration(), ResourceTableMigration()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    database = *std::move(opened);
    auto store =
        ModelStore::Open({*database, disk, clock}, {.models_folder = folder + "/models",
                                                    .staging_folder = folder + "/tmp/import",
                                                    .allowed_paths = {folder + "/allowed"}});
    EXPECT_TRUE(store.ok()) << store.status();
    models = *std::move(store);
  }

  v1::ModelVersion WaitFor(const std::string& name) {
    v1::ModelVersion version;
    do {
      std::this_thread::yield();
      version = *models->Get(name);
    } while (version.state() == v1::MODEL_STATE_IMPORTING);
    return version;
  }

  v1::ModelVersion Import(const std::string& path, const RequestKey& key = {}) {
    const auto version = models->Import(key, {.model_id = "toy", .path = path});
    EXPECT_TRUE(version.ok()) << version.status();
    return WaitFor(version->name());
  }

  SystemClock clock;
  PosixFileSystem posix;
  FaultyFileSystem disk{&posix};
  std::unique_ptr<Database> database;
  std::unique_ptr<ModelStore> models;
};

class ModelStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::canonical(::testing::TempDir()).string() + "/" + name;
    std::filesystem::create_directories(folder_ + "/allowed");
    model_ = MakeModel("model");
  }

  std::string MakeModel(const std::string& name) const {
    const auto config = TestConfig(/*tied=*/false);
    const std::string made =
        WriteModelFolder(name, config, RandomTensors(config, TensorDtype::kBf16, 1), 2);
    WriteTextFile(made + "/tokenizer.json", "{}");
    WriteTextFile(made + "/modeling.py", "raise SystemExit");
    WriteTextFile(made + "/pytorch_model.bin", "pickle");
    std::filesystem::create_directories(made + "/additional_chat_templates");
    WriteTextFile(made + "/additional_chat_templates/x.jinja", "x");
    const std::string model = absl::StrCat(folder_, "/allowed/", name);
    std::filesystem::remove_all(model);
    std::filesystem::rename(made, model);
    return model;
  }

  std::vector<std::string> Files(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + name)) {
      files.push_back(entry.path().filename());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  std::string folder_;
  std::string model_;
};

void ExpectEqualFolders(const std::string& a, const std::string& b) {
  PosixFileSystem disk;
  const auto files = *ListFiles(a);
  EXPECT_THAT(files, Not(IsEmpty()));
  EXPECT_EQ(files.size(), ListFiles(b)->size());
  for (const NamedFile& file : files) {
    EXPECT_EQ(ReadWholeFile(file.path), ReadWholeFile(b + "/" + file.name)) << file.name;
  }
}

TEST_F(ModelStoreTest, ImportsWhatBelongsToAModel) {
  Service service(folder_);
  const v1::ModelVersion version = service.Import(model_);
  EXPECT_EQ(version.name(), "models/toy/versions/1");
  ASSERT_EQ(version.state(), v1::MODEL_STATE_READY) << version.failure();
  EXPECT_EQ(version.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(version.source(), model_);
  EXPECT_TRUE(version.trainable());
  EXPECT_GT(version.parameter_count(), 0);
  EXPECT_EQ(version.path(), folder_ + "/models/toy/versions/1");
  EXPECT_EQ(version.size_bytes(), DescribeFolder(service.disk, version.path())->size_bytes);
  EXPECT_THAT(Files("models/toy/versions/1"), AllOf(Not(::testing::Contains("modeling.py")),
                                                    Not(::testing::Contains("pytorch_model.bin"))));
  std::filesystem::remove(model_ + "/modeling.py");
  std::filesystem::remove(model_ + "/pytorch_model.bin");
  ExpectEqualFolders(model_, version.path());
  EXPECT_THAT(Files("tmp/import"), IsEmpty());
}

TEST_F(ModelStoreTest, VersionsCountAndTheNewestReadyOneIsFound) {
  Service service(folder_);
  EXPECT_TRUE(absl::IsNotFound(service.models->Get("models/toy").status()));
  service.Import(model_);
  EXPECT_EQ(service.Import(model_).name(), "models/toy/versions/2");
  const auto other = service.models->Import({}, {.model_id = "other", .path = model_});
  service.WaitFor(other->name());
  EXPECT_EQ(service.models->Get("models/toy")->name(), "models/toy/versions/2");
  EXPECT_EQ(service.models->List("", 0, 10)->size(), 3U);
  const auto toys = *service.models->List("models/toy", 0, 1);
  EXPECT_EQ(toys[0].message.name(), "models/toy/versions/2");
  const auto older = *service.models->List("models/toy", toys[0].number, 10);
  ASSERT_EQ(older.size(), 1U);
  EXPECT_EQ(older[0].message.name(), "models/toy/versions/1");
}

TEST_F(ModelStoreTest, WhatCannotBeImportedIsSaidAndLeavesNothing) {
  Service service(folder_);
  const auto error = [&](const std::string& path) {
    const auto version = service.models->Import({}, {.model_id = "toy", .path = path});
    const auto checked =
        service.models->Import({}, {.model_id = "toy", .path = path, .validate_only = true});
    EXPECT_EQ(version.status().message(), checked.status().message());
    return version.status();
  };
  EXPECT_EQ(ReasonOf(error("/etc")), "PATH_NOT_ALLOWED");
  EXPECT_THAT(std::string(error(folder_ + "/allowed/absent").message()),
              HasSubstr("there is no model folder at"));

  std::string model = MakeModel("truncated");
  const std::string weights = model + "/model-00000-of-00009.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
  const absl::Status truncated = error(model);
  EXPECT_TRUE(absl::IsDataLoss(truncated)) << truncated;
  EXPECT_THAT(std::string(truncated.message()), HasSubstr("model-00000-of-00009.safetensors"));
  EXPECT_EQ(ReasonOf(truncated), "MODEL_NOT_USABLE");

  model = MakeModel("unknown");
  auto config = TestConfig(false);
  config["architectures"] = {"MysteryForCausalLM"};
  WriteTextFile(model + "/config.json", config.dump());
  const absl::Status unknown = error(model);
  EXPECT_TRUE(absl::IsUnimplemented(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("MysteryForCausalLM"));

  model = MakeModel("mute");
  std::filesystem::remove(model + "/tokenizer.json");
  EXPECT_THAT(std::string(error(model).message()), HasSubstr("has no tokenizer.json"));

  model = MakeModel("linked");
  std::filesystem::rename(model + "/tokenizer.json", folder_ + "/outside.json");
  std::filesystem::create_symlink(folder_ + "/outside.json", model + "/tokenizer.json");
  EXPECT_EQ(ReasonOf(error(model)), "PATH_NOT_ALLOWED");

  model = MakeModel("pipe");
  std::filesystem::remove(model + "/config.json");
  ASSERT_EQ(::mkfifo((model + "/config.json").c_str(), 0600), 0);
  EXPECT_EQ(ReasonOf(error(model)), "MODEL_NOT_USABLE");

  service.disk.FillAfter(1000);
  EXPECT_EQ(ReasonOf(error(model_)), "DISK_FULL");
  EXPECT_TRUE(service.models->List("", 0, 10)->empty());
  EXPECT_THAT(Files("models"), IsEmpty());
  EXPECT_THAT(Files("tmp/import"), IsEmpty());
}

TEST_F(ModelStoreTest, FollowsLinksWithinTheAllowedFolder) {
  std::filesystem::create_directories(folder_ + "/allowed/blobs");
  std::filesystem::rename(model_ + "/tokenizer.json", folder_ + "/allowed/blobs/1");
  std::filesystem::create_symlink("../blobs/1", model_ + "/tokenizer.json");
  Service service(folder_);
  const v1::ModelVersion version = service.Import(model_);
  ASSERT_EQ(version.state(), v1::MODEL_STATE_READY) << version.failure();
  EXPECT_FALSE(std::filesystem::is_symlink(version.path() + "/tokenizer.json"));
}

TEST_F(ModelStoreTest, ADiskThatIsFullInTheCopyFailsTheVersionAndLeavesNothing) {
  Service service(folder_);
  service.disk.FillAfter(DescribeFolder(service.disk, model_)->size_bytes / 2,
                         /*announced=*/false);
  const v1::ModelVersion version = service.Import(model_);
  EXPECT_EQ(version.state(), v1::MODEL_STATE_FAILED);
  EXPECT_THAT(version.failure(), HasSubstr("No space left on device"));
  EXPECT_THAT(Files("tmp/import"), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(service.models->Get("models/toy").status()));
  service.disk.Repair();
  EXPECT_EQ(service.Import(model_).state(), v1::MODEL_STATE_READY);
}

TEST_F(ModelStoreTest, ARepeatMakesNothingNew) {
  Service service(folder_);
  const RequestKey key{"ImportModel", "id", "payload"};
  const v1::ModelVersion first = service.Import(model_, key);
  std::filesystem::remove_all(model_);
  EXPECT_EQ(service.Import(model_, key).uid(), first.uid());
  EXPECT_EQ(service.models->List("", 0, 10)->size(), 1U);
}

TEST_F(ModelStoreTest, ExportsBytesAsTheyAre) {
  Service service(folder_);
  const v1::ModelVersion version = service.Import(model_);
  const RequestKey key{"ExportModel", "id", "payload"};
  const std::string out = folder_ + "/allowed/out";
  for (int i = 0; i < 2; ++i) {
    const auto exported = service.models->Export(key, "models/toy", out);
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->name(), version.name());
    EXPECT_EQ(exported->path(), out);
    EXPECT_EQ(exported->size_bytes(), version.size_bytes());
  }
  ExpectEqualFolders(version.path(), out);
  EXPECT_EQ(ReasonOf(service.models->Export({}, "models/toy", out).status()), "PATH_EXISTS");
  EXPECT_THAT(Files("allowed"), ElementsAre("model", "out"));
}

TEST_F(ModelStoreTest, AnExportThatFailsLeavesNothing) {
  Service service(folder_);
  const v1::ModelVersion version = service.Import(model_);
  const auto error = [&](const std::string& path) {
    const absl::Status status = service.models->Export({}, "models/toy", path).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Files("allowed"), ElementsAre("model"));
    return status;
  };
  const std::string out = folder_ + "/allowed/out";
  EXPECT_EQ(ReasonOf(error(folder_ + "/out")), "PATH_NOT_ALLOWED");
  EXPECT_EQ(ReasonOf(error(out + "/deeper")), "FOLDER_NOT_FOUND");
  service.disk.FillAfter(version.size_bytes() - 1);
  EXPECT_EQ(ReasonOf(error(out)), "DISK_FULL");
  service.disk.FillAfter(version.size_bytes() / 2, /*announced=*/false);
  EXPECT_TRUE(absl::IsResourceExhausted(error(out)));
  service.disk.Break();
  EXPECT_FALSE(error(out).ok());
  service.disk.Repair();
  WriteTextFile(version.path() + "/config.json", "{}");
  EXPECT_TRUE(absl::IsDataLoss(error(out)));
  EXPECT_TRUE(absl::IsNotFound(service.models->Export({}, "models/absent", out).status()));
}

TEST_F(ModelStoreTest, PublishesOnceForEachSource) {
  Service service(folder_);
  const std::string output = folder_ + "/output";
  std::filesystem::copy(model_, output, std::filesystem::copy_options::recursive);
  const auto version = service.models->Publish("models/tuned", output, "jobs/a");
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->name(), "models/tuned/versions/1");
  EXPECT_EQ(version->state(), v1::MODEL_STATE_READY);
  ExpectEqualFolders(model_, version->path());
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_EQ(service.models->Publish("models/tuned", output, "jobs/a")->uid(), version->uid());
  EXPECT_FALSE(service.models->Publish("models/tuned", output, "jobs/b").ok());
  EXPECT_EQ(service.models->List("", 0, 10)->size(), 1U);
  ASSERT_TRUE(service.models->Export({}, "models/tuned", folder_ + "/allowed/out").ok());
}

// As after the database was put back: what is there has another job's weights.
TEST_F(ModelStoreTest, AFolderWithoutARowIsNobodysVersion) {
  Service service(folder_);
  std::filesystem::create_directories(folder_ + "/models/tuned/versions/1");
  const std::string output = folder_ + "/output";
  std::filesystem::copy(model_, output, std::filesystem::copy_options::recursive);
  const auto version = service.models->Publish("models/tuned", output, "jobs/a");
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->name(), "models/tuned/versions/2");
  ExpectEqualFolders(model_, version->path());
}

TEST_F(ModelStoreTest, APublicationThatFailsAnywhereIsFinishedAtTheNextTry) {
  Service service(folder_);
  int failures = 0;
  for (int64_t operation = 0; operation < 5; ++operation) {
    const std::string output = absl::StrCat(folder_, "/output", operation);
    const std::string source = absl::StrCat("jobs/", operation);
    std::filesystem::copy(model_, output, std::filesystem::copy_options::recursive);
    service.disk.FailAt(operation, FaultyFileSystem::Fault::kBroken);
    if (!service.models->Publish("models/tuned", output, source).ok()) {
      ++failures;
      EXPECT_FALSE(service.models->Publish("models/tuned", output, source).ok())
          << operation << ": what is not synced is not ready";
    }
    service.disk.Repair();
    const auto version = service.models->Publish("models/tuned", output, source);
    ASSERT_TRUE(version.ok()) << version.status();
    ExpectEqualFolders(model_, version->path());
  }
  EXPECT_GE(failures, 4);
}

// Ends the process in a random moment of its work, again and again.
TEST_F(ModelStoreTest, SurvivesSigkillAtAnyPoint) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 12; ++round) {
    const std::string output = absl::StrCat(folder_, "/output", round);
    std::filesystem::copy(model_, output, std::filesystem::copy_options::recursive);
    const std::string out = absl::StrCat(folder_, "/allowed/out", round);
    const uint32_t delay_us = random() % 30'000;
    const pid_t child = ::fork();
    if (child == 0) {
      Service service(folder_);
      ::ualarm(delay_us + 1, 0);  // SIGALRM ends the process like SIGKILL does
      const auto import = service.models->Import({}, {.model_id = "toy", .path = model_});
      service.models->Publish("models/tuned", output, absl::StrCat("jobs/", round)).IgnoreError();
      if (import.ok()) service.WaitFor(import->name());
      service.models->Export({}, "models/toy", out).IgnoreError();
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    Service service(folder_);
    const auto versions = *service.models->List("", 0, 100);
    for (const auto& [number, version] : versions) {
      const v1::ModelVersion ready = service.WaitFor(version.name());
      ASSERT_EQ(ready.state(), v1::MODEL_STATE_READY) << ready.failure();
      EXPECT_EQ(DescribeFolder(service.disk, ready.path())->fingerprint, ready.fingerprint());
    }
    const auto published =
        service.models->Publish("models/tuned", output, absl::StrCat("jobs/", round));
    ASSERT_TRUE(published.ok()) << published.status();
    if (std::filesystem::exists(out))
      ExpectEqualFolders(service.models->Get("models/toy")->path(), out);
    EXPECT_THAT(Files("tmp/import"), IsEmpty());
    for (const std::string& name : Files("allowed")) EXPECT_NE(name[0], '.') << name;
  }
  Service service(folder_);
  EXPECT_EQ(service.models->List("models/tuned", 0, 100)->size(), 12U);
}

}  // namespace
}  // namespace megatrain
