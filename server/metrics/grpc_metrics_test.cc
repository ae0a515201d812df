#include "server/metrics/grpc_metrics.h"

#include <grpcpp/grpcpp.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "megatrain/v1/server_service.grpc.pb.h"
#include "runtime/base/clock.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NamelessService final : public v1::ServerService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest*, v1::Server*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "no"});
    return reactor;
  }
};

TEST(GrpcMetricsTest, CallsAreCountedByCode) {
  SystemClock clock;
  prometheus::Registry registry;
  GrpcMetrics metrics(registry, {"megatrain.v1.ServerService"}, clock);
  NamelessService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(metrics.MakeInterceptorFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  const auto server = builder.BuildAndStart();
  const auto stub = v1::ServerService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::Server answer;
    EXPECT_EQ(stub->GetServer(&context, {}, &answer).error_code(), grpc::StatusCode::NOT_FOUND);
  }
  server->Shutdown();
  server->Wait();
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  const std::string labels =
      "grpc_method=\"GetServer\",grpc_service=\"megatrain.v1.ServerService\"";
  EXPECT_THAT(text,
              AllOf(HasSubstr("grpc_server_started_total{" + labels),
                    HasSubstr("grpc_code=\"NotFound\"," + labels + ",grpc_type=\"unary\"} 3\n"),
                    HasSubstr("grpc_code=\"OK\"," + labels + ",grpc_type=\"unary\"} 0\n"),
                    HasSubstr("grpc_server_handling_seconds_count{" + labels +
                              ",grpc_type=\"unary\"} 3\n")));
}

}  // namespace
}  // namespace megatrain
