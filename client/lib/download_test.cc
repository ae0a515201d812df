#include "client/lib/download.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include "client/lib/error_text.h"
#include "client/lib/folder_lock.h"
#include "client/lib/interruption.h"
#include "client/lib/scripted_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/sha256.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kName[] = "jobs/a/checkpoints/step-00000120";

std::string Bytes(int64_t size, uint32_t seed) {
  std::string bytes(static_cast<size_t>(size), '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RecordingSink final : public DownloadSink {
 public:
  void OnReceived(int64_t received_bytes, int64_t size_bytes) override {
    received = received_bytes;
    size = size_bytes;
  }
  void OnResumed(int64_t received_bytes) override { resumed.push_back(received_bytes); }
  void OnDamaged(const std::string& path) override { damaged.push_back(path); }

  int64_t received = 0;
  int64_t size = 0;
  std::vector<int64_t> resumed;
  std::vector<std::string> damaged;
};

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest()
      : root_(::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name()),
        folder_(root_ + "/saved"),
        contents_{{"manifest.json", "{\"step\": 120}"},
                  {"weights.bin", Bytes(3 * kMiB + 5, 1)},
                  {"planes/moments.bin", Bytes(kMiB, 2)},
                  {"planes/empty.bin", ""}} {
    fs::remove_all(root_);
    fs::create_directories(root_);
    checkpoint_.set_name(kName);
    checkpoint_.set_uid("uid-1");
    for (const auto& [path, content] : contents_) {
      v1::CheckpointFile* file = checkpoint_.add_files();
      file->set_path(path);
      file->set_size_bytes(static_cast<int64_t>(content.size()));
      file->set_crc32c(Crc32c(content));
    }
    Sha256 hash;
    hash.Update(contents_["manifest.json"]);
    FileOf("manifest.json")->set_sha256(hash.HexDigest());
    server_.checkpoints.get = [this](const v1::GetCheckpointRequest& request,
                                     v1::Checkpoint& response) {
      EXPECT_EQ(request.name(), kName);
      response = checkpoint_;
      return grpc::Status::OK;
    };
    server_.checkpoints.read = [this](grpc::ServerContext&,
                                      const v1::ReadCheckpointRequest& request,
                                      auto& writer) { return Read(request, writer); };
    server_.Start();
  }

  v1::CheckpointFile* FileOf(const std::string& path) {
    const auto file =
        std::find_if(checkpoint_.mutable_files()->begin(), checkpoint_.mutable_files()->end(),
                     [&](const v1::CheckpointFile& candidate) { return candidate.path() == path; });
    return &*file;
  }

  // The range in pieces of 1 MiB; breaks off where `breaks_` says, each time once.
  grpc::Status Read(const v1::ReadCheckpointRequest& request,
                    grpc::ServerWriter<v1::ReadCheckpointResponse>& writer) {
    EXPECT_EQ(request.name(), kName);
    const std::string& content = contents_[request.path()];
    for (int64_t offset = request.offset_bytes(); offset < static_cast<int64_t>(content.size());) {
      if (!breaks_.empty() && request.path() == "weights.bin" && offset >= breaks_.front()) {
        breaks_.erase(breaks_.begin());
        return broken_;
      }
      v1::ReadCheckpointResponse piece;
      piece.set_offset_bytes(offset);
      piece.set_data(content.substr(static_cast<size_t>(offset), kMiB));
      piece.set_crc32c(Crc32c(piece.data()) ^ (damages_-- > 0 ? 1 : 0));
      writer.Write(piece);
      sent_bytes_ += static_cast<int64_t>(piece.data().size());
      offset += static_cast<int64_t>(piece.data().size());
    }
    return grpc::Status::OK;
  }

  absl::StatusOr<v1::Checkpoint> Download() { return Download(files_); }
  absl::StatusOr<v1::Checkpoint> Download(FileSystem& files) {
    ConnectionOptions options;
    options.address = server_.address();
    options.attempts = 2;
    options.first_backoff = absl::Milliseconds(1);
    options.patience = absl::ZeroDuration();
    Connection connection(options, clock_, interruption_);
    return DownloadCheckpoint(connection, files, kName, folder_, sink_, download_options_);
  }

  void ExpectComplete() {
    for (const auto& [path, content] : contents_) {
      EXPECT_TRUE(ContentOf(folder_ + "/" + path) == content) << path;
    }
    EXPECT_THAT(Names(), ElementsAre("saved"));
  }

  // What lies beside the folder and itself.
  std::vector<std::string> Names() const { return *PosixFileSystem().ListFolder(root_); }

  // The folder of what is not complete.
  std::string Partial() const { return root_ + "/" + Names().at(0); }

  const std::string root_;
  const std::string folder_;
  std::map<std::string, std::string> contents_;
  v1::Checkpoint checkpoint_;
  std::vector<int64_t> breaks_;  // offsets in weights.bin
  grpc::Status broken_{grpc::StatusCode::UNAVAILABLE, "link cut"};
  std::atomic<int> damages_ = 0;  // pieces that arrive damaged
  std::atomic<int64_t> sent_bytes_ = 0;
  DownloadOptions download_options_;
  SystemClock clock_;
  PosixFileSystem files_;
  Interruption interruption_;
  RecordingSink sink_;
  ScriptedServer server_;
};

TEST_F(DownloadTest, TheFolderGetsItsNameWithAllFiles) {
  const absl::StatusOr<v1::Checkpoint> checkpoint = Download();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->name(), kName);
  ExpectComplete();
  EXPECT_EQ(sink_.received, sink_.size);
  EXPECT_EQ(sent_bytes_, sink_.size);
  EXPECT_THAT(sink_.resumed, IsEmpty());
}

TEST_F(DownloadTest, GoesOnWhereABrokenStreamLeftOff) {
  breaks_ = {kMiB, 2 * kMiB, 3 * kMiB};
  ASSERT_TRUE(Download().ok());
  ExpectComplete();
  EXPECT_EQ(sink_.resumed.size(), 3u);
  EXPECT_EQ(sent_bytes_, sink_.size) << "nothing came twice";
}

TEST_F(DownloadTest, AnotherProcessGoesOnWithWhatOneLeft) {
  breaks_ = {2 * kMiB};
  broken_ = grpc::Status(grpc::StatusCode::INTERNAL, "gone");
  ASSERT_FALSE(Download().ok());
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(fs::file_size(Partial() + "/weights.bin"), 2 * kMiB);
  ASSERT_TRUE(Download().ok());
  ExpectComplete();
  EXPECT_EQ(sent_bytes_, sink_.size) << "nothing came twice";
  EXPECT_EQ(sink_.resumed.size(), 1u);
}

TEST_F(DownloadTest, LeftoversThatRottedAreFetchedAgain) {
  breaks_ = {2 * kMiB};
  broken_ = grpc::Status(grpc::StatusCode::INTERNAL, "gone");
  ASSERT_FALSE(Download().ok());
  std::fstream(Partial() + "/weights.bin", std::ios::binary | std::ios::in | std::ios::out)
      << "rotten";
  std::ofstream(Partial() + "/manifest.json", std::ios::binary) << std::string(100, '?');
  ASSERT_TRUE(Download().ok());
  ExpectComplete();
  EXPECT_THAT(sink_.damaged, ElementsAre("weights.bin")) << "the longer one is just dropped";
}

TEST_F(DownloadTest, AnotherCheckpointOfTheSameNameStartsAnew) {
  breaks_ = {2 * kMiB};
  broken_ = grpc::Status(grpc::StatusCode::INTERNAL, "gone");
  ASSERT_FALSE(Download().ok());
  checkpoint_.set_uid("uid-2");
  sent_bytes_ = 0;
  ASSERT_TRUE(Download().ok());
  EXPECT_EQ(sent_bytes_, sink_.size);
  EXPECT_THAT(sink_.resumed, IsEmpty());
}

TEST_F(DownloadTest, ADamagedPieceComesAgain) {
  damages_ = 1;
  ASSERT_TRUE(Download().ok());
  ExpectComplete();
  EXPECT_THAT(sink_.damaged, IsEmpty()) << "it never reached the file";
}

TEST_F(DownloadTest, AFileThatIsNotItsChecksumIsDataLoss) {
  for (const bool crc : {true, false}) {
    if (crc) {
      FileOf("weights.bin")->set_crc32c(7);
    } else {
      FileOf("weights.bin")->set_crc32c(Crc32c(contents_["weights.bin"]));
      FileOf("manifest.json")->set_sha256(std::string(64, '0'));
    }
    const absl::Status status = Download().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(DescribeError(status).reason, "CHECKPOINT_CORRUPT");
    EXPECT_FALSE(fs::exists(folder_));
  }
  EXPECT_THAT(sink_.damaged, ElementsAre("weights.bin", "manifest.json"));
}

TEST_F(DownloadTest, GivesUpWhenNothingAdvances) {
  breaks_ = std::vector<int64_t>(9, 0);
  const absl::Status status = Download().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(breaks_.size(), 7u) << "two attempts";
}

TEST_F(DownloadTest, ASilentStreamIsGivenUp) {
  download_options_.silence_limit = absl::Milliseconds(30);
  download_options_.tick = absl::Milliseconds(1);
  std::atomic<bool> silent = true;
  server_.checkpoints.read = [&](grpc::ServerContext& context,
                                 const v1::ReadCheckpointRequest& request,
                                 auto& writer) -> grpc::Status {
    if (!silent.exchange(false)) {
      return Read(request, writer);
    }
    while (!context.IsCancelled()) {
      std::this_thread::yield();
    }
    return grpc::Status::OK;
  };
  EXPECT_TRUE(Download().ok());
  EXPECT_EQ(sink_.resumed.size(), 1u);
}

TEST_F(DownloadTest, OtherErrorsAreFinalAndTheServers) {
  breaks_ = {kMiB, kMiB};
  broken_ = ErrorWithReason(grpc::StatusCode::NOT_FOUND, "gone", "RESOURCE_NOT_FOUND");
  EXPECT_EQ(DescribeError(Download().status()).reason, "RESOURCE_NOT_FOUND");
  EXPECT_EQ(breaks_.size(), 1u);
}

TEST_F(DownloadTest, NoFileLeavesTheFolder) {
  for (const char* path : {"../escaped", "/escaped", "a/../../escaped", "a//b", "", ".", "a/."}) {
    FileOf("weights.bin")->set_path(path);
    EXPECT_THAT(Download().status().message(), HasSubstr("which no checkpoint has")) << path;
    FileOf(path)->set_path("weights.bin");
  }
  FileOf("weights.bin")->set_path("manifest.json");
  EXPECT_FALSE(Download().ok()) << "two files of one name";
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(DownloadTest, AnExistingFolderIsLeftAlone) {
  fs::create_directories(folder_);
  EXPECT_EQ(Download().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DownloadTest, TwoProcessesDoNotMix) {
  breaks_ = {0, 0};
  ASSERT_FALSE(Download().ok());
  const absl::StatusOr<FolderLock> other = FolderLock::Take(Partial());
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(DescribeError(Download().status()).reason, "FOLDER_BUSY");
}

TEST_F(DownloadTest, TooLittleRoomIsToldBeforeAnythingIsFetched) {
  FaultyFileSystem disk(&files_);
  disk.FillAfter(2 * kMiB);
  const absl::Status status = Download(disk).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(DescribeError(status).what, HasSubstr("0.00 GiB are free"));
  EXPECT_EQ(sent_bytes_, 0);
}

TEST_F(DownloadTest, ADiskThatFillsUpIsTakenUpAgainAfterwards) {
  FaultyFileSystem disk(&files_);
  disk.FillAfter(2 * kMiB + 100, /*announced=*/false);
  EXPECT_EQ(Download(disk).status().code(), absl::StatusCode::kResourceExhausted);
  disk.Repair();
  ASSERT_TRUE(Download(disk).ok());
  ExpectComplete();
  EXPECT_THAT(sink_.damaged, IsEmpty());
}

TEST_F(DownloadTest, AnInterruptionStopsItAndKeepsWhatIsThere) {
  server_.checkpoints.read = [&](grpc::ServerContext&, const v1::ReadCheckpointRequest& request,
                                 auto& writer) {
    if (request.path() == "weights.bin") {
      interruption_.Trigger();
    }
    return Read(request, writer);
  };
  EXPECT_EQ(Download().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(fs::exists(Partial() + "/manifest.json"));
}

}  // namespace
}  // namespace megatrain
