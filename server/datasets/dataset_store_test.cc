// Data sets with the real helper, real files and a real database.

#include "server/datasets/dataset_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/environment_for_test.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/sha256.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kRow[] =
    R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"
    "\n";
constexpr char kLongRow[] = R"({"messages":[{"role":"user","content":"a a a a a a a a a"},)"
                            R"({"role":"assistant","content":"b"}]})"
                            "\n";
constexpr char kTokenizer[] = R"({
  "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
  "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
  "added_tokens": [{"id": 2, "content": "end", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "model": {"type": "WordLevel", "unk_token": "a",
            "vocab": {"user": 0, "assistant": 1, "end": 2, "a": 3, "b": 4}}})";
constexpr char kTemplate[] =
    "{% for m in messages %}{{ m.role }} {{ m.content }} end {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}";
constexpr char kEndlessTemplate[] =
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A daemon's part that keeps data sets; closing and making it again is a restart.
class Service {
 public:
  explicit Service(const std::string& folder, int64_t file_limit_bytes = 1 << 30,
                   absl::Duration time_limit = absl::Hours(1))
      : preparer(clock, {.archive = "server/datasets/prepare/prepare.zip",
                         .python_path = EnvironmentForTest("MEGATRAIN_DEPS"),
                         .file_limit_bytes = file_limit_bytes,
                         .time_limit = time_limit}) {
    auto opened = Database::Open(folder + "/db", {RequestLogMigration(), ResourceTableMigration()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    database = *std::move(opened);
    uploads = *UploadStore::Open(*database, disk, clock, {.folder = folder + "/uploads"});
    auto store = DatasetStore::Open({*database, disk, clock, *uploads, preparer},
                                    {.datasets_folder = folder + "/datasets",
                                     .prepared_folder = folder + "/prepared",
                                     .staging_folder = folder + "/tmp/prepare"});
    EXPECT_TRUE(store.ok()) << store.status();
    datasets = *std::move(store);
  }

  std::string Upload(const std::string& text) {
    Sha256 hash;
    hash.Update(text);
    auto upload = uploads->Start({}, static_cast<int64_t>(text.size()), hash.HexDigest());
    EXPECT_TRUE(upload.ok()) << upload.status();
    if (upload->finalized()) return upload->name();
    auto writer = *uploads->OpenWriter(upload->name());
    for (size_t at = 0; at < text.size(); at += kMaxUploadPieceBytes) {
      const std::string_view piece = std::string_view(text).substr(at, kMaxUploadPieceBytes);
      EXPECT_TRUE(writer->Append(static_cast<int64_t>(at), piece, Crc32c(piece)).ok());
    }
    writer.reset();
    EXPECT_TRUE(uploads->Finalize(upload->name()).ok());
    return upload->name();
  }

  // The data set once it is checked.
  v1::Dataset Make(const std::string& id, const std::string& text, bool skip = false) {
    const auto created =
        datasets->Create({}, {.dataset_id = id, .upload = Upload(text), .skip_bad_rows = skip});
    EXPECT_TRUE(created.ok()) << created.status();
    return WaitFor(id);
  }

  v1::Dataset WaitFor(const std::string& id) {
    v1::Dataset dataset;
    do {
      std::this_thread::yield();
      dataset = *datasets->Get("datasets/" + id);
    } while (dataset.state() == v1::DATASET_STATE_CHECKING);
    return dataset;
  }

  SystemClock clock;
  PosixFileSystem posix;
  FaultyFileSystem disk{&posix};
  DataPreparer preparer;
  std::unique_ptr<Database> database;
  std::unique_ptr<UploadStore> uploads;
  std::unique_ptr<DatasetStore> datasets;
};

class DatasetStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_ + "/model");
    WriteText(folder_ + "/model/tokenizer.json", kTokenizer);
    WriteText(folder_ + "/model/chat_template.jinja", kTemplate);
  }

  std::vector<std::string> Files(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + name)) {
      files.push_back(entry.path().filename());
    }
    return files;
  }

  DatasetStore::PrepareRequest Request(int64_t max_sequence_length = 8) const {
    return {.run_name = "jobs/a",
            .dataset = "datasets/a",
            .model_path = folder_ + "/model",
            .vocabulary_size = 5,
            .max_sequence_length = max_sequence_length};
  }

  std::string folder_;
};

TEST_F(DatasetStoreTest, ChecksAndLists) {
  Service service(folder_);
  const v1::Dataset dataset = service.Make("a", std::string(kRow) + kRow);
  EXPECT_EQ(dataset.state(), v1::DATASET_STATE_READY) << dataset.failure();
  EXPECT_EQ(dataset.row_count(), 2);
  EXPECT_EQ(dataset.size_bytes(), 2 * (sizeof(kRow) - 1));
  const v1::Dataset skipped = service.Make("b", absl::StrCat(kRow, "bad\n"), /*skip=*/true);
  EXPECT_EQ(skipped.row_count(), 1);
  EXPECT_EQ(skipped.skipped_row_count(), 1);
  const auto all = *service.datasets->List(0, 10);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].message.name(), "datasets/b");
  EXPECT_EQ(service.datasets->List(all[0].number, 10)->front().message.name(), "datasets/a");
  EXPECT_TRUE(absl::IsNotFound(service.datasets->Get("datasets/c").status()));
}

TEST_F(DatasetStoreTest, WhatCannotBeUsedIsSaidAndLeavesNothing) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "the data set is empty"},
      {absl::StrCat(kRow, "{\n"), "line 2: is not JSON"},
      {R"({"messages":[{"role":"user","content":"a"}]})", "line 1: has no assistant turn"},
      {absl::StrCat(kRow, kRow, std::string(10 << 20, 'x')), "line 3: the row is longer than"},
      {std::string(100'000, '[') + std::string(100'000, ']'), "line 1: is JSON that is nested too"},
  };
  Service service(folder_);
  for (const auto& [text, reason] : cases) {
    const v1::Dataset dataset = service.Make("a", text);  // a failed one's name is free again
    EXPECT_EQ(dataset.state(), v1::DATASET_STATE_FAILED);
    EXPECT_THAT(dataset.failure(), StartsWith(reason));
  }
  service.datasets.reset();  // ends the removal that follows the state
  EXPECT_THAT(Files("datasets"), IsEmpty());
  EXPECT_THAT(Files("uploads"), IsEmpty());
}

TEST_F(DatasetStoreTest, RefusesWhatItCannotTake) {
  Service service(folder_);
  const auto unfinished = *service.uploads->Start({}, 4, std::string(64, 'a'));
  const auto create = [&](const std::string& upload, bool validate_only = false) {
    return service.datasets->Create(
        {}, {.dataset_id = "a", .upload = upload, .validate_only = validate_only});
  };
  EXPECT_TRUE(absl::IsNotFound(create("uploads/absent").status()));
  EXPECT_EQ(ReasonOf(create(unfinished.name()).status()), "UPLOAD_NOT_FINALIZED");
  EXPECT_EQ(ReasonOf(create(unfinished.name(), true).status()), "UPLOAD_NOT_FINALIZED");
  const std::string upload = service.Upload(kRow);
  EXPECT_EQ(create(upload, true)->state(), v1::DATASET_STATE_CHECKING);
  EXPECT_TRUE(absl::IsNotFound(service.datasets->Get("datasets/a").status()));
  ASSERT_TRUE(create(upload).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(create(upload).status()));
}

TEST_F(DatasetStoreTest, ARepeatMakesNothingNew) {
  Service service(folder_);
  const RequestKey key{"CreateDataset", "id", "payload"};
  const DatasetStore::CreateRequest request{.dataset_id = "a", .upload = service.Upload(kRow)};
  const auto first = service.datasets->Create(key, request);
  const auto again = service.datasets->Create(key, request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->uid(), first->uid());
}

TEST_F(DatasetStoreTest, AFullDiskMakesNoDataset) {
  Service service(folder_);
  const std::string upload = service.Upload(kRow);
  service.disk.FillAfter(0);
  const auto created = service.datasets->Create({}, {.dataset_id = "a", .upload = upload});
  EXPECT_TRUE(absl::IsResourceExhausted(created.status())) << created.status();
  EXPECT_TRUE(absl::IsNotFound(service.datasets->Get("datasets/a").status()));
  service.disk.Repair();
  EXPECT_EQ(service.Make("a", kRow).state(), v1::DATASET_STATE_READY);
}

TEST_F(DatasetStoreTest, MakesTokensOnce) {
  std::string path;
  std::filesystem::file_time_type made;
  {
    Service service(folder_);
    service.Make("a", kRow);
    const auto prepared = service.datasets->Prepare(Request());
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    path = *prepared;
    made = std::filesystem::last_write_time(path + "/manifest.json");
    EXPECT_EQ(std::filesystem::file_size(path + "/tokens.bin"), 6 * sizeof(int32_t));
  }
  Service service(folder_);
  EXPECT_EQ(*service.datasets->Prepare(Request()), path);
  EXPECT_EQ(std::filesystem::last_write_time(path + "/manifest.json"), made);
  const std::string other = *service.datasets->Prepare(Request(/*max_sequence_length=*/6));
  EXPECT_NE(other, path);
  WriteText(folder_ + "/model/chat_template.jinja", absl::StrCat("{# changed #}", kTemplate));
  EXPECT_NE(*service.datasets->Prepare(Request()), path);
}

TEST_F(DatasetStoreTest, NoTokensAreMadeOfAFileThatHasChanged) {
  Service service(folder_);
  service.Make("a", absl::StrCat(kRow, kRow));
  const std::string path = *service.datasets->Prepare(Request());
  WriteText(folder_ + "/datasets/a/data.jsonl", kRow);
  EXPECT_EQ(*service.datasets->Prepare(Request()), path) << "they are those of the upload";
  std::filesystem::remove_all(path);
  const absl::Status status = service.datasets->Prepare(Request()).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(ReasonOf(status), "DATASET_CHANGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("datasets/a/data.jsonl, has changed"));
  EXPECT_THAT(Files("prepared"), IsEmpty());
  WriteText(folder_ + "/datasets/a/data.jsonl", absl::StrCat(kRow, kRow));
  EXPECT_EQ(*service.datasets->Prepare(Request()), path);
}

TEST_F(DatasetStoreTest, WhatCannotBePreparedIsSaidAndLeavesNothing) {
  Service service(folder_, /*file_limit_bytes=*/4096);
  service.Make("a", absl::StrCat(kRow, kLongRow));
  const auto untrained = service.datasets->Prepare(Request());
  EXPECT_TRUE(absl::IsInvalidArgument(untrained.status()));
  EXPECT_THAT(std::string(untrained.status().message()),
              StartsWith("datasets/a: line 2: has no token to learn"));
  DatasetStore::PrepareRequest request = Request();
  request.skip_untrained_rows = true;
  EXPECT_TRUE(service.datasets->Prepare(request).ok());
  request.vocabulary_size = 3;
  EXPECT_FALSE(service.datasets->Prepare(request).ok());
  request = Request();
  request.model_path = folder_;
  EXPECT_TRUE(absl::IsNotFound(service.datasets->Prepare(request).status()));
  request.dataset = "datasets/absent";
  EXPECT_TRUE(absl::IsNotFound(service.datasets->Prepare(request).status()));

  std::string many;
  for (int i = 0; i < 1000; ++i) many += kRow;
  service.Make("many", many);
  request = Request();
  request.dataset = "datasets/many";
  const auto too_big = service.datasets->Prepare(request);
  EXPECT_THAT(std::string(too_big.status().message()), HasSubstr("File too large"));
  EXPECT_THAT(Files("tmp/prepare"), IsEmpty());
  EXPECT_EQ(Files("prepared").size(), 1U);
}

TEST_F(DatasetStoreTest, AnEndlessTemplateIsEnded) {
  Service service(folder_, 1 << 30, absl::Seconds(3));
  WriteText(folder_ + "/model/chat_template.jinja", kEndlessTemplate);
  service.Make("a", kRow);
  const auto prepared = service.datasets->Prepare(Request());
  EXPECT_THAT(std::string(prepared.status().message()), HasSubstr("took longer than 3s"));
  EXPECT_THAT(Files("tmp/prepare"), IsEmpty());
}

TEST_F(DatasetStoreTest, StopEndsAPreparation) {
  Service service(folder_);
  WriteText(folder_ + "/model/chat_template.jinja", kEndlessTemplate);
  service.Make("a", kRow);
  absl::Status status;
  std::atomic<bool> ended = false;
  std::thread preparation([&] {
    status = service.datasets->Prepare(Request()).status();
    ended = true;
  });
  while (!ended) service.preparer.Stop("jobs/a");
  preparation.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(Files("tmp/prepare"), IsEmpty());
}

TEST_F(DatasetStoreTest, ACheckThatADeathInterruptsGoesOnAtTheNextStart) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += kRow;
  const pid_t child = ::fork();
  if (child == 0) {
    Service service(folder_);
    const auto created =
        service.datasets->Create({}, {.dataset_id = "a", .upload = service.Upload(text)});
    ::kill(::getpid(), created.ok() ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  std::filesystem::create_directories(folder_ + "/datasets/stray");
  WriteText(folder_ + "/tmp/prepare/stray", "x");
  Service service(folder_);
  EXPECT_EQ(service.datasets->Get("datasets/a")->state(), v1::DATASET_STATE_CHECKING);
  EXPECT_EQ(service.WaitFor("a").row_count(), 100'000);
  EXPECT_THAT(Files("datasets"), ::testing::ElementsAre("a"));
  EXPECT_THAT(Files("tmp/prepare"), IsEmpty());
}

}  // namespace
}  // namespace megatrain
