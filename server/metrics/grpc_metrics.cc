#include "server/metrics/grpc_metrics.h"

#include <google/protobuf/descriptor.h>

namespace megatrain {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// As the common middleware spells grpc's codes.
const std::map<int, std::string>& CodeNames() {
  static const auto* const names =
      new std::map<int, std::string>{{grpc::StatusCode::OK, "OK"},
                                     {grpc::StatusCode::CANCELLED, "Canceled"},
                                     {grpc::StatusCode::UNKNOWN, "Unknown"},
                                     {grpc::StatusCode::INVALID_ARGUMENT, "InvalidArgument"},
                                     {grpc::StatusCode::DEADLINE_EXCEEDED, "DeadlineExceeded"},
                                     {grpc::StatusCode::NOT_FOUND, "NotFound"},
                                     {grpc::StatusCode::ALREADY_EXISTS, "AlreadyExists"},
                                     {grpc::StatusCode::PERMISSION_DENIED, "PermissionDenied"},
                                     {grpc::StatusCode::RESOURCE_EXHAUSTED, "ResourceExhausted"},
                                     {grpc::StatusCode::FAILED_PRECONDITION, "FailedPrecondition"},
                                     {grpc::StatusCode::ABORTED, "Aborted"},
                                     {grpc::StatusCode::OUT_OF_RANGE, "OutOfRange"},
                                     {grpc::StatusCode::UNIMPLEMENTED, "Unimplemented"},
                                     {grpc::StatusCode::INTERNAL, "Internal"},
                                     {grpc::StatusCode::UNAVAILABLE, "Unavailable"},
                                     {grpc::StatusCode::DATA_LOSS, "DataLoss"},
                                     {grpc::StatusCode::UNAUTHENTICATED, "Unauthenticated"}};
  return *names;
}

std::string TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) {
    return method.server_streaming() ? "bidi_stream" : "client_stream";
  }
  return method.server_streaming() ? "server_stream" : "unary";
}

// Counts one call: its start at once, its code when the status goes out. A call whose status never
// goes out was cancelled.
class CountingInterceptor final : public grpc::experimental::Interceptor {
 public:
  CountingInterceptor(GrpcMetrics& metrics, GrpcMetrics::Method* method)
      : metrics_(metrics), method_(method), start_(metrics.Now()) {
    if (method_ != nullptr) {
      method_->started->Increment();
    }
  }

  ~CountingInterceptor() override {
    if (method_ == nullptr) {
      return;
    }
    method_->handled.at(code_)->Increment();
    if (method_->seconds != nullptr) {
      method_->seconds->Observe(absl::ToDoubleSeconds(metrics_.Now() - start_));
    }
  }

  void Intercept(InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const int code = batch->GetSendStatus().error_code();
      code_ = CodeNames().contains(code) ? code : int{grpc::StatusCode::UNKNOWN};
    }
    batch->Proceed();
  }

 private:
  GrpcMetrics& metrics_;
  GrpcMetrics::Method* const method_;
  const absl::Duration start_;
  int code_ = grpc::StatusCode::CANCELLED;
};

class InterceptorFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit InterceptorFactory(GrpcMetrics& metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CountingInterceptor(metrics_, metrics_.Find(info->method()));
  }

 private:
  GrpcMetrics& metrics_;
};

}  // namespace

GrpcMetrics::GrpcMetrics(prometheus::Registry& registry, const std::vector<std::string>& services,
                         const Clock& clock)
    : clock_(clock) {
  auto& started = prometheus::BuildCounter()
                      .Name("grpc_server_started_total")
                      .Help("Calls started")
                      .Register(registry);
  auto& handled = prometheus::BuildCounter()
                      .Name("grpc_server_handled_total")
                      .Help("Calls ended, by status code")
                      .Register(registry);
  auto& seconds = prometheus::BuildHistogram()
                      .Name("grpc_server_handling_seconds")
                      .Help("Time of unary calls")
                      .Register(registry);
  for (const std::string& name : services) {
    const google::protobuf::ServiceDescriptor* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
      const google::protobuf::MethodDescriptor& method = *service->method(i);
      const std::map<std::string, std::string> labels = {
          {"grpc_type", TypeOf(method)}, {"grpc_service", name}, {"grpc_method", method.name()}};
      Method& counted = methods_["/" + name + "/" + method.name()];
      counted.started = &started.Add(labels);
      for (const auto& [code, code_name] : CodeNames()) {
        std::map<std::string, std::string> with_code = labels;
        with_code["grpc_code"] = code_name;
        counted.handled[code] = &handled.Add(with_code);
      }
      if (TypeOf(method) == "unary") {
        counted.seconds =
            &seconds.Add(labels, std::vector<double>{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25, 0.5, 1, 2.5, 5, 10});
      }
    }
  }
}

GrpcMetrics::Method* GrpcMetrics::Find(const std::string& path) {
  const auto method = methods_.find(path);
  return method == methods_.end() ? nullptr : &method->second;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
GrpcMetrics::MakeInterceptorFactory() {
  return std::make_unique<InterceptorFactory>(*this);
}

}  // namespace megatrain
