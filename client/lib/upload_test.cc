#include "client/lib/upload.h"

#include <fstream>

#include "client/lib/error_text.h"
#include "client/lib/interruption.h"
#include "client/lib/scripted_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;

class RecordingSink final : public UploadSink {
 public:
  void OnHashed(int64_t hashed_bytes) override {}
  void OnKnown() override { known = true; }
  void OnSent(int64_t sent_bytes, int64_t size_bytes) override { sent = sent_bytes; }
  void OnResumed(int64_t offset_bytes) override { resumed.push_back(offset_bytes); }

  bool known = false;
  int64_t sent = 0;
  std::vector<int64_t> resumed;
};

class UploadTest : public ::testing::Test {
 protected:
  UploadTest() : path_(::testing::TempDir() + "/upload_me"), content_(3 * kMiB + 5, 'x') {
    for (size_t i = 0; i < content_.size(); ++i) {
      content_[i] = static_cast<char>(i * 2654435761u >> 13);
    }
    std::ofstream(path_, std::ios::binary) << content_;
    server_.Start();
  }

  absl::StatusOr<v1::Upload> Upload() {
    ConnectionOptions options;
    options.address = server_.address();
    options.attempts = 2;
    options.first_backoff = absl::Milliseconds(1);
    Connection connection(options, clock_, interruption_);
    return UploadFile(connection, path_, sink_);
  }

  const std::string path_;
  std::string content_;
  SystemClock clock_;
  Interruption interruption_;
  ScriptedServer server_;
  RecordingSink sink_;
};

TEST_F(UploadTest, SendsTheFile) {
  const absl::StatusOr<v1::Upload> upload = Upload();
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_TRUE(upload->finalized());
  EXPECT_EQ(server_.uploads.content(upload->sha256()), content_);
  EXPECT_EQ(sink_.sent, static_cast<int64_t>(content_.size()));
  EXPECT_THAT(sink_.resumed, IsEmpty());
}

TEST_F(UploadTest, GoesOnWhereABrokenStreamLeftOff) {
  server_.uploads.BreakStreams({kMiB, 2 * kMiB},
                               grpc::Status(grpc::StatusCode::UNAVAILABLE, "link cut"));
  const absl::StatusOr<v1::Upload> upload = Upload();
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(server_.uploads.content(upload->sha256()), content_);
  EXPECT_EQ(server_.uploads.received_bytes(), static_cast<int64_t>(content_.size()))
      << "nothing was sent twice";
  EXPECT_EQ(server_.uploads.stream_count(), 3);
  EXPECT_THAT(sink_.resumed, ElementsAre(kMiB, 3 * kMiB));
}

TEST_F(UploadTest, AsksForTheRightOffsetAfterOutOfRange) {
  server_.uploads.BreakStreams({kMiB}, grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "offset"));
  ASSERT_TRUE(Upload().ok());
  EXPECT_THAT(sink_.resumed, ElementsAre(kMiB));
}

TEST_F(UploadTest, GivesUpWhenNothingAdvances) {
  server_.uploads.BreakStreams({0, 0, 0, 0, 0},
                               grpc::Status(grpc::StatusCode::UNAVAILABLE, "link cut"));
  const absl::Status status = Upload().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_.uploads.stream_count(), 2);
}

TEST_F(UploadTest, OtherErrorsAreFinal) {
  server_.uploads.BreakStreams(
      {kMiB}, ErrorWithReason(grpc::StatusCode::RESOURCE_EXHAUSTED, "disk full", "DISK_FULL"));
  EXPECT_EQ(DescribeError(Upload().status()).reason, "DISK_FULL");
  EXPECT_EQ(server_.uploads.stream_count(), 1);
}

TEST_F(UploadTest, AnotherProcessGoesOnWithTheSameUpload) {
  server_.uploads.BreakStreams(
      {2 * kMiB}, ErrorWithReason(grpc::StatusCode::RESOURCE_EXHAUSTED, "disk full", "DISK_FULL"));
  ASSERT_FALSE(Upload().ok());
  ASSERT_TRUE(Upload().ok());
  EXPECT_THAT(sink_.resumed, ElementsAre(2 * kMiB));
  EXPECT_EQ(server_.uploads.received_bytes(), static_cast<int64_t>(content_.size()));
}

TEST_F(UploadTest, AKnownFileIsNotSentAgain) {
  ASSERT_TRUE(Upload().ok());
  EXPECT_FALSE(sink_.known);
  ASSERT_TRUE(Upload().ok());
  EXPECT_TRUE(sink_.known);
  EXPECT_EQ(server_.uploads.stream_count(), 1);
}

TEST_F(UploadTest, AnInterruptionStopsIt) {
  interruption_.Trigger();
  EXPECT_EQ(Upload().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace megatrain
