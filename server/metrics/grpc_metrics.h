// Counts of gRPC calls under the names that stock dashboards know.

#ifndef SERVER_METRICS_GRPC_METRICS_H_
#define SERVER_METRICS_GRPC_METRICS_H_

#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace megatrain {

// The counters of the methods of `services`, all with 0 from the start. Thread-safe.
class GrpcMetrics {
 public:
  // `services` are full names of linked services, such as "megatrain.v1.JobService". The clock
  // outlives it.
  GrpcMetrics(prometheus::Registry& registry, const std::vector<std::string>& services,
              const Clock& clock);

  struct Method {
    prometheus::Counter* started = nullptr;
    std::map<int, prometheus::Counter*> handled;  // by code
    prometheus::Histogram* seconds = nullptr;     // of unary calls
  };

  // Of a path such as "/megatrain.v1.JobService/GetJob"; nullptr for one that is not counted.
  Method* Find(const std::string& path);

  // For ServerBuilder. This outlives the server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptorFactory();

  absl::Duration Now() const { return clock_.MonotonicNow(); }

 private:
  std::map<std::string, Method> methods_;
  const Clock& clock_;
};

}  // namespace megatrain

#endif  // SERVER_METRICS_GRPC_METRICS_H_
