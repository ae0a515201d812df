#include "client/lib/connection.h"

#include <atomic>
#include <thread>

#include "client/lib/error_text.h"
#include "client/lib/scripted_server.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

class ConnectionTest : public ::testing::Test {
 protected:
  Connection ConnectTo(const std::string& address,
                       absl::Duration timeout = absl::InfiniteDuration()) {
    ConnectionOptions options;
    options.address = address;
    options.timeout = timeout;
    options.first_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(10);
    return Connection(options, clock_, interruption_);
  }

  absl::StatusOr<v1::Job> GetJob(Connection& connection) {
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    return connection.Call(CallKind::kRead, &v1::JobService::Stub::GetJob, request);
  }

  // Answers with each status once, then with OK.
  void AnswerWith(std::vector<grpc::Status> answers) {
    server_.jobs.get = [this, answers](const v1::GetJobRequest& request, v1::Job& job) {
      const size_t call = call_count_++;
      job.set_name(request.name());
      return call < answers.size() ? answers[call] : grpc::Status::OK;
    };
    server_.Start();
  }

  SystemClock clock_;
  Interruption interruption_;
  std::atomic<size_t> call_count_ = 0;
  ScriptedServer server_;
};

TEST_F(ConnectionTest, RepeatsAfterUnavailable) {
  const grpc::Status unavailable(grpc::StatusCode::UNAVAILABLE, "starting");
  AnswerWith({unavailable, unavailable});
  Connection connection = ConnectTo(server_.address());
  const absl::StatusOr<v1::Job> job = GetJob(connection);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "jobs/a");
  EXPECT_EQ(call_count_, 3u);
}

TEST_F(ConnectionTest, GivesUpAfterItsAttempts) {
  AnswerWith(std::vector<grpc::Status>(
      9, ErrorWithReason(grpc::StatusCode::UNAVAILABLE, "the server stops", "DRAINING")));
  Connection connection = ConnectTo(server_.address());
  const absl::Status status = GetJob(connection).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DescribeError(status).reason, "DRAINING") << "the server's words are kept";
  EXPECT_EQ(call_count_, 4u);
}

TEST_F(ConnectionTest, AServerThatSaysWhenToComeBackIsAskedAgain) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(1'000'000);
  google::rpc::Status details;
  details.add_details()->PackFrom(retry);
  AnswerWith(std::vector<grpc::Status>(
      9, grpc::Status(grpc::StatusCode::UNAVAILABLE, "starts", details.SerializeAsString())));
  Connection connection = ConnectTo(server_.address());
  EXPECT_TRUE(GetJob(connection).ok());
  EXPECT_EQ(call_count_, 10u);
}

TEST_F(ConnectionTest, RepeatsNothingElse) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::ABORTED,
        grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::INTERNAL}) {
    server_.Stop();
    call_count_ = 0;
    AnswerWith({grpc::Status(code, "no")});
    Connection connection = ConnectTo(server_.address());
    EXPECT_EQ(static_cast<int>(GetJob(connection).status().code()), static_cast<int>(code));
    EXPECT_EQ(call_count_, 1u);
  }
}

TEST_F(ConnectionTest, AnAbsentServerIsNamed) {
  server_.Start();
  const std::string address = server_.address();
  server_.Stop();
  Connection connection = ConnectTo(address);
  const absl::Status status = GetJob(connection).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const ErrorText text = DescribeError(status);
  EXPECT_THAT(text.what, HasSubstr(address));
  EXPECT_THAT(text.hint, HasSubstr("MEGATRAIN_ADDRESS"));
  EXPECT_EQ(text.reason, "SERVER_UNREACHABLE");
}

TEST_F(ConnectionTest, ASlowServerEndsInTheTimeout) {
  std::atomic<bool> release = false;
  server_.jobs.get = [&](const v1::GetJobRequest&, v1::Job&) {
    while (!release) {
      std::this_thread::yield();
    }
    return grpc::Status::OK;
  };
  server_.Start();
  Connection connection = ConnectTo(server_.address(), absl::Milliseconds(50));
  const absl::Status status = GetJob(connection).status();
  release = true;
  server_.Stop();  // its threads look at `release`
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(DescribeError(status).what, HasSubstr(server_.address()));
}

TEST_F(ConnectionTest, AnInterruptionEndsTheRepeats) {
  AnswerWith({});
  interruption_.Trigger();
  Connection connection = ConnectTo(server_.address());
  EXPECT_EQ(GetJob(connection).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(call_count_, 0u);
}

TEST(BackoffTest, DoublesWithJitterUpToItsLimit) {
  const absl::Duration first = absl::Seconds(1);
  const absl::Duration max = absl::Seconds(5);
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(Connection::Backoff(1, first, max), AllOf(Ge(first / 2), Le(first)));
    EXPECT_THAT(Connection::Backoff(2, first, max), AllOf(Ge(first), Le(2 * first)));
    EXPECT_THAT(Connection::Backoff(1000, first, max), AllOf(Ge(max / 2), Le(max)));
  }
}

TEST(AddressTest, FlagThenEnvironmentThenDefault) {
  EXPECT_EQ(*ResolveAddress("a:1", "b:2"), "a:1");
  EXPECT_EQ(*ResolveAddress("", "unix:/run/x.sock"), "unix:/run/x.sock");
  EXPECT_EQ(*ResolveAddress("", ""), kDefaultAddress);
}

TEST(AddressTest, RefusesWhatIsNone) {
  for (const char* wrong : {"localhost", "localhost:", ":1", "a:0", "a:65536", "a:b", "unix:x"}) {
    EXPECT_EQ(ResolveAddress(wrong, "").status().code(), absl::StatusCode::kInvalidArgument)
        << wrong;
  }
  EXPECT_FALSE(ResolveAddress("unix:/" + std::string(107, 'x'), "").ok());
  EXPECT_TRUE(ResolveAddress("unix:/" + std::string(106, 'x'), "").ok());
}

}  // namespace
}  // namespace megatrain
