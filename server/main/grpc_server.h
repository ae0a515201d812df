#ifndef SERVER_MAIN_GRPC_SERVER_H_
#define SERVER_MAIN_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/grpc_metrics.h"

namespace megatrain {

struct GrpcServerOptions {
  std::string listen;                    // loopback; port 0: any free one
  std::string unix_socket;               // empty: none
  std::vector<grpc::Service*> services;  // outlive the server
  GrpcMetrics* metrics = nullptr;        // outlives the server
};

struct RunningGrpcServer {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // with the port that was bound
};

// With health (not yet serving) and reflection. UNAVAILABLE when an address is taken.
absl::StatusOr<RunningGrpcServer> StartGrpcServer(const GrpcServerOptions& options);

}  // namespace megatrain

#endif  // SERVER_MAIN_GRPC_SERVER_H_
