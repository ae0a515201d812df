#include "server/api/unary_calls.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "megatrain/v1/server_service.grpc.pb.h"

namespace megatrain {
namespace {

// The machine's wall clock, put forward, so that a default deadline of 30 s is over soon.
class ShiftedClock final : public Clock {
 public:
  absl::Duration MonotonicNow() const override { return system_.MonotonicNow(); }
  absl::Time WallNow() const override { return system_.WallNow() + shift; }

  absl::Duration shift = absl::ZeroDuration();

 private:
  SystemClock system_;
};

class Service final : public v1::ServerService::CallbackService {
 public:
  explicit Service(UnaryCalls& calls) : calls_(calls) {}

  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest*, v1::Server* response) override {
    if (long_answer) {
      return GetLong(context, response);
    }
    const auto handle = [this] { return answer(); };
    return mutation ? calls_.Mutate(context, response, handle)
                    : calls_.Read(context, response, handle);
  }

  grpc::ServerUnaryReactor* GetLong(grpc::CallbackServerContext* context, v1::Server* response) {
    return calls_.Mutate(context, response,
                         [this](const ByteProgress& progress) { return long_answer(progress); });
  }

  std::function<absl::StatusOr<v1::Server>()> answer;
  std::function<absl::StatusOr<v1::Server>(const ByteProgress&)> long_answer;
  bool mutation = false;

 private:
  UnaryCalls& calls_;
};

class UnaryCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::ServerService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                           grpc::InsecureChannelCredentials()));
  }

  void TearDown() override {
    server_->Shutdown();
    server_->Wait();
  }

  // Makes a call and cancels it once its handler has started.
  void CancelOnce(std::future<void> started) {
    grpc::ClientContext context;
    std::thread client([&] {
      v1::Server server;
      EXPECT_EQ(stub_->GetServer(&context, {}, &server).error_code(), grpc::StatusCode::CANCELLED);
    });
    started.wait();
    context.TryCancel();
    client.join();
  }

  grpc::Status Get(v1::Server* server = nullptr) {
    grpc::ClientContext context;
    v1::Server ignored;
    return stub_->GetServer(&context, {}, server == nullptr ? &ignored : server);
  }

  ShiftedClock clock_;
  Executor executor_{2};
  UnaryCalls calls_{executor_, clock_};
  Service service_{calls_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::ServerService::Stub> stub_;
};

absl::StatusOr<v1::Server> Version(const std::string& version) {
  v1::Server server;
  server.set_version(version);
  return server;
}

TEST_F(UnaryCallsTest, AnswersAndErrorsArrive) {
  service_.answer = [] { return Version("1.2"); };
  v1::Server server;
  ASSERT_TRUE(Get(&server).ok());
  EXPECT_EQ(server.version(), "1.2");
  service_.answer = [] { return absl::NotFoundError("no"); };
  EXPECT_EQ(Get().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(UnaryCallsTest, ACallWithoutADeadlineGetsOne) {
  clock_.shift = absl::Milliseconds(-29'900);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  service_.answer = [released] {
    released.wait();
    return Version("late");
  };
  EXPECT_EQ(Get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  release.set_value();
}

TEST_F(UnaryCallsTest, ACancelledCallEndsAtOnceAndLetsTheServerStop) {
  std::promise<void> started;
  std::promise<void> release;
  service_.answer = [&] {
    started.set_value();
    release.get_future().wait();
    return Version("late");
  };
  CancelOnce(started.get_future());
  server_->Shutdown();
  server_->Wait();  // the handler still blocks: only the call has ended
  release.set_value();
}

TEST_F(UnaryCallsTest, DrainRefusesMutationsAndAnswersReads) {
  service_.answer = [] { return Version("1"); };
  calls_.Drain();
  EXPECT_TRUE(Get().ok());
  service_.mutation = true;
  EXPECT_EQ(Get().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Works until it is told that nobody waits.
absl::StatusOr<v1::Server> WorkUntilStopped(const ByteProgress& progress) {
  absl::Status status;
  while (status.ok()) {
    status = progress(0, 1);
    std::this_thread::yield();
  }
  return status;
}

TEST_F(UnaryCallsTest, ALongHandlerEndsWithItsCall) {
  std::promise<void> started;
  std::promise<absl::Status> ended;
  service_.long_answer = [&](const ByteProgress& progress) {
    started.set_value();
    const auto result = WorkUntilStopped(progress);
    ended.set_value(result.status());
    return result;
  };
  CancelOnce(started.get_future());
  EXPECT_TRUE(absl::IsCancelled(ended.get_future().get()));
}

TEST_F(UnaryCallsTest, ALongHandlerEndsWhenTheServerStops) {
  std::promise<void> started;
  service_.long_answer = [&](const ByteProgress& progress) {
    started.set_value();
    return WorkUntilStopped(progress);
  };
  std::thread client([&] { EXPECT_EQ(Get().error_code(), grpc::StatusCode::UNAVAILABLE); });
  started.get_future().wait();
  calls_.Stop();
  client.join();
}

TEST_F(UnaryCallsTest, MoreThanMayWaitAreRefused) {
  Executor one(1);
  UnaryCalls few(one, clock_, /*waiting_limit=*/1);
  Service service(few);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  std::promise<void> blocked;
  one.Run([&blocked, released] {
    blocked.set_value();
    released.wait();
  });
  blocked.get_future().wait();
  service.answer = [] { return Version("1"); };
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = v1::ServerService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  // One of the two waits, whichever came first; the other one is refused at once.
  std::array<grpc::Status, 2> statuses;
  std::array<std::thread, 2> clients;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 2; ++i) {
    clients[i] = std::thread([&, i] {
      grpc::ClientContext context;
      v1::Server answer;
      statuses[i] = stub->GetServer(&context, {}, &answer);
      if (!statuses[i].ok() && ++refused == 1) {
        release.set_value();
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(refused, 1);
  for (const grpc::Status& status : statuses) {
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE)
        << status.error_message();
  }
  server->Shutdown();
  server->Wait();
}

}  // namespace
}  // namespace megatrain
