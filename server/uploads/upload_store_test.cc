#include "server/uploads/upload_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/sha256.h"
#include "runtime/base/virtual_clock.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/resources/resource_table.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::string HashText(const std::string& text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

std::string RandomText(int64_t size_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(static_cast<size_t>(size_bytes), '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// A daemon's part that keeps uploads; closing and making it again is a restart.
class Service {
 public:
  explicit Service(const std::string& folder) {
    auto database =
        Database::Open(folder + "/db", {RequestLogMigration(), ResourceTableMigration()});
    EXPECT_TRUE(database.ok()) << database.status();
    database_ = *std::move(database);
    auto store = UploadStore::Open(*database_, disk, clock, {.folder = folder + "/uploads"});
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  UploadStore* operator->() { return store_.get(); }

  PosixFileSystem posix;
  FaultyFileSystem disk{&posix};
  VirtualClock clock;

 private:
  std::unique_ptr<Database> database_;
  std::unique_ptr<UploadStore> store_;
};

class UploadStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }

  static v1::Upload Start(Service& service, const std::string& text) {
    auto upload = service->Start({}, static_cast<int64_t>(text.size()), HashText(text));
    EXPECT_TRUE(upload.ok()) << upload.status();
    return *upload;
  }

  // Sends the file from where the server has it, in pieces of `piece_bytes`.
  static absl::Status Send(Service& service, const std::string& name, const std::string& text,
                           int64_t piece_bytes = kMaxUploadPieceBytes) {
    auto writer = service->OpenWriter(name);
    if (!writer.ok()) return writer.status();
    auto at = static_cast<size_t>(service->Get(name)->committed_bytes());
    for (; at < text.size(); at += static_cast<size_t>(piece_bytes)) {
      const std::string_view piece =
          std::string_view(text).substr(at, static_cast<size_t>(piece_bytes));
      const absl::Status status = (*writer)->Append(static_cast<int64_t>(at), piece, Crc32c(piece));
      if (!status.ok()) return status;
    }
    return (*writer)->Commit().status();
  }

  std::string FileText(Service& service, const std::string& name) {
    std::ifstream file(service->PathOf(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  size_t FileCount() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_ + "/uploads"), {}));
  }

  std::string folder_;
};

TEST_F(UploadStoreTest, TakesAFileAcrossRestarts) {
  const std::string text = RandomText(3'000'001, 1);
  std::string name;
  {
    Service service(folder_);
    name = Start(service, text).name();
    auto writer = service->OpenWriter(name);
    ASSERT_TRUE(writer.ok()) << writer.status();
    const std::string_view piece = std::string_view(text).substr(0, 1000);
    ASSERT_TRUE((*writer)->Append(0, piece, Crc32c(piece)).ok());
    EXPECT_EQ((*writer)->Commit()->committed_bytes(), 1000);
  }
  Service service(folder_);
  EXPECT_EQ(service->Get(name)->committed_bytes(), 1000);
  ASSERT_TRUE(Send(service, name, text).ok());
  for (int i = 0; i < 2; ++i) {
    const auto upload = service->Finalize(name);
    ASSERT_TRUE(upload.ok()) << upload.status();
    EXPECT_TRUE(upload->finalized());
  }
  EXPECT_EQ(FileText(service, name), text);
  const auto writer = service->OpenWriter(name);
  EXPECT_EQ(ReasonOf(writer.status()), "UPLOAD_FINALIZED");
}

TEST_F(UploadStoreTest, AWrongOffsetNamesTheRightOne) {
  Service service(folder_);
  const std::string text = "0123456789";
  const std::string name = Start(service, text).name();
  auto writer = service->OpenWriter(name);
  ASSERT_TRUE((*writer)->Append(0, "0123", Crc32c("0123")).ok());
  for (const int64_t offset : {0, 3, 5, -1}) {
    const absl::Status status = (*writer)->Append(offset, "x", Crc32c("x"));
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
    EXPECT_EQ(ReasonOf(status), "WRONG_OFFSET");
    EXPECT_THAT(std::string(status.message()), HasSubstr("send from byte 4 on"));
  }
  EXPECT_EQ(service->Get(name)->committed_bytes(), 4);
}

TEST_F(UploadStoreTest, RefusesDamagedLongAndTooMuchData) {
  Service service(folder_);
  const std::string text(3 << 20, 'x');
  const std::string name = Start(service, text).name();
  auto writer = service->OpenWriter(name);
  EXPECT_THAT(std::string((*writer)->Append(0, "x", Crc32c("y")).message()), HasSubstr("crc32c"));
  const std::string long_piece(kMaxUploadPieceBytes + 1, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Append(0, long_piece, Crc32c(long_piece))));
  const std::string piece(kMaxUploadPieceBytes, 'x');
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*writer)->Append(int64_t{i} << 20, piece, Crc32c(piece)).ok());
  }
  EXPECT_TRUE(absl::IsInvalidArgument((*writer)->Append(3 << 20, "x", Crc32c("x"))));
  writer->reset();
  EXPECT_TRUE(service->Finalize(name).ok());
}

TEST_F(UploadStoreTest, OneWriterAtATime) {
  Service service(folder_);
  const std::string name = Start(service, "text").name();
  auto writer = service->OpenWriter(name);
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE(absl::IsAborted(service->OpenWriter(name).status()));
  writer->reset();
  EXPECT_TRUE(service->OpenWriter(name).ok());
  EXPECT_TRUE(absl::IsNotFound(service->OpenWriter("uploads/absent").status()));
  EXPECT_TRUE(absl::IsNotFound(service->OpenWriter("uploads/absent").status()));
}

TEST_F(UploadStoreTest, AnIncompleteOrAnotherFileIsNotFinalized) {
  Service service(folder_);
  const std::string name = Start(service, "text").name();
  EXPECT_EQ(ReasonOf(service->Finalize(name).status()), "UPLOAD_INCOMPLETE");
  ASSERT_TRUE(Send(service, name, "tixt").ok());
  EXPECT_EQ(ReasonOf(service->Finalize(name).status()), "SHA256_MISMATCH");
  EXPECT_TRUE(absl::IsNotFound(service->Get(name).status()));
  EXPECT_EQ(FileCount(), 0U);
}

TEST_F(UploadStoreTest, AnEmptyFileAndAKnownOne) {
  Service service(folder_);
  const std::string empty = Start(service, "").name();
  EXPECT_TRUE(service->Finalize(empty).ok());
  const std::string name = Start(service, "text").name();
  EXPECT_NE(Start(service, "text").name(), name);  // not known before it is finalized
  ASSERT_TRUE(Send(service, name, "text").ok());
  ASSERT_TRUE(service->Finalize(name).ok());
  const v1::Upload known = Start(service, "text");
  EXPECT_EQ(known.name(), name);
  EXPECT_TRUE(known.finalized());
}

TEST_F(UploadStoreTest, ARepeatedStartGetsTheFirstAnswer) {
  Service service(folder_);
  const RequestKey key{"StartUpload", "id", "payload"};
  const auto first = service->Start(key, 4, HashText("text"));
  EXPECT_EQ(service->Start(key, 4, HashText("text"))->name(), first->name());
  EXPECT_EQ(FileCount(), 1U);
}

TEST_F(UploadStoreTest, ExpiredOnesAreDroppedUnlessTheyAreWritten) {
  Service service(folder_);
  const std::string name = Start(service, "text").name();
  const std::string written = Start(service, "other").name();
  auto writer = service->OpenWriter(written);
  service.clock.Advance(absl::Hours(7 * 24) - absl::Seconds(1));
  ASSERT_TRUE(service->RemoveExpired().ok());
  EXPECT_TRUE(service->Get(name).ok());
  service.clock.Advance(absl::Seconds(1));
  ASSERT_TRUE(service->RemoveExpired().ok());
  EXPECT_TRUE(absl::IsNotFound(service->Get(name).status()));
  EXPECT_TRUE(service->Get(written).ok());
  writer->reset();
  ASSERT_TRUE(service->RemoveExpired().ok());
  EXPECT_EQ(FileCount(), 0U);
}

TEST_F(UploadStoreTest, AFullDiskIsSaidAndTheUploadGoesOnAfterwards) {
  Service service(folder_);
  const std::string text = RandomText(3 << 20, 2);
  const std::string name = Start(service, text).name();
  service.disk.FillAfter(2'500'000);
  EXPECT_TRUE(absl::IsResourceExhausted(Send(service, name, text)));
  const auto no_room = service->Start({}, 3 << 20, HashText(text));
  EXPECT_EQ(ReasonOf(no_room.status()), "DISK_FULL");
  service.disk.Repair();
  ASSERT_TRUE(Send(service, name, text).ok());
  EXPECT_TRUE(service->Finalize(name).ok());
}

TEST_F(UploadStoreTest, AWriterThatFailedWritesNoMore) {
  Service service(folder_);
  const std::string name = Start(service, "0123456789").name();
  auto writer = service->OpenWriter(name);
  ASSERT_TRUE((*writer)->Append(0, "01", Crc32c("01")).ok());
  service.disk.FillAfter(3);
  EXPECT_TRUE(absl::IsResourceExhausted((*writer)->Append(2, "23456", Crc32c("23456"))));
  service.disk.Repair();
  EXPECT_TRUE(absl::IsResourceExhausted((*writer)->Append(2, "23456", Crc32c("23456"))));
  EXPECT_EQ((*writer)->Commit()->committed_bytes(), 2);
  writer->reset();
  ASSERT_TRUE(Send(service, name, "0123456789").ok());
  EXPECT_TRUE(service->Finalize(name).ok());
}

TEST_F(UploadStoreTest, ABrokenDiskCommitsNothing) {
  Service service(folder_);
  const std::string name = Start(service, "0123456789").name();
  auto writer = service->OpenWriter(name);
  ASSERT_TRUE((*writer)->Append(0, "0123", Crc32c("0123")).ok());
  service.disk.Break();
  EXPECT_FALSE((*writer)->Commit().ok());
  EXPECT_EQ(service->Get(name)->committed_bytes(), 0);
  service.disk.Repair();
  EXPECT_EQ((*writer)->Commit()->committed_bytes(), 4);
}

TEST_F(UploadStoreTest, FilesWithoutARowAreRemovedAtStart) {
  {
    Service service(folder_);
  }
  std::ofstream(folder_ + "/uploads/upload-stray") << "x";
  const Service service(folder_);
  EXPECT_EQ(FileCount(), 0U);
}

// Kills a writing process after a random number of commits: what it was told is there.
TEST_F(UploadStoreTest, SurvivesSigkillAtAnyPoint) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::string text = RandomText(1 << 20, seed);
  std::string name;
  {
    Service service(folder_);
    name = Start(service, text).name();
  }
  int64_t committed_bytes = 0;
  for (int round = 0; round < 8; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Service service(folder_);
      auto writer = service->OpenWriter(name);
      auto at = static_cast<size_t>(service->Get(name)->committed_bytes());
      for (; writer.ok() && at < text.size(); at += 4096) {
        const std::string_view piece = std::string_view(text).substr(at, 4096);
        if (!(*writer)->Append(static_cast<int64_t>(at), piece, Crc32c(piece)).ok()) break;
        if (at % 8192 == 0) continue;  // some pieces are only written, not committed
        const int64_t told = (*writer)->Commit()->committed_bytes();
        if (::write(pipe_ends[1], &told, sizeof(told)) != sizeof(told)) break;
      }
      ::_exit(0);
    }
    ::close(pipe_ends[1]);
    int64_t told = 0;
    for (uint32_t left = random() % 20; left > 0; --left) {
      if (::read(pipe_ends[0], &told, sizeof(told)) != sizeof(told)) break;
    }
    ::kill(child, SIGKILL);
    while (::read(pipe_ends[0], &told, sizeof(told)) == sizeof(told)) {
    }
    ::waitpid(child, nullptr, 0);
    ::close(pipe_ends[0]);
    Service service(folder_);
    const int64_t now_bytes = service->Get(name)->committed_bytes();
    EXPECT_GE(now_bytes, told);
    EXPECT_GE(now_bytes, committed_bytes);
    committed_bytes = now_bytes;
    const auto length = static_cast<size_t>(now_bytes);
    EXPECT_EQ(FileText(service, name).substr(0, length), text.substr(0, length));
  }
  Service service(folder_);
  ASSERT_TRUE(Send(service, name, text, 4096).ok());
  EXPECT_TRUE(service->Finalize(name).ok());
}

}  // namespace
}  // namespace megatrain
