#include "server/main/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

constexpr int kMaxReceiveBytes = 4 << 20;
constexpr size_t kMaxBufferedBytes = size_t{512} << 20;

void SetLimits(grpc::ServerBuilder& builder) {
  // Without this a second server would bind the same port and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 256);
  // Notices clients that vanished; allows the pings that ours send on open streams.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 20'000);
  grpc::ResourceQuota quota("megatraind");
  quota.Resize(kMaxBufferedBytes);
  builder.SetResourceQuota(quota);
}

// Of a daemon that was killed: a living one would hold the state folder's lock.
void RemoveStaleSocket(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    unlink(path.c_str());
  }
}

}  // namespace

absl::StatusOr<RunningGrpcServer> StartGrpcServer(const GrpcServerOptions& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetLimits(builder);
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  int socket = 1;
  if (!options.unix_socket.empty()) {
    RemoveStaleSocket(options.unix_socket);
    builder.AddListeningPort(absl::StrCat("unix:", options.unix_socket),
                             grpc::InsecureServerCredentials(), &socket);
  }
  for (grpc::Service* service : options.services) {
    builder.RegisterService(service);
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(options.metrics->MakeInterceptorFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  RunningGrpcServer running;
  running.server = builder.BuildAndStart();
  if (running.server == nullptr || port == 0 || socket == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", socket == 0 ? options.unix_socket : options.listen,
                     ": is it in use? Stop what uses it, or set another --listen"));
  }
  if (!options.unix_socket.empty()) {
    chmod(options.unix_socket.c_str(), 0660);  // the user and the group
  }
  running.server->GetHealthCheckService()->SetServingStatus(false);
  running.address = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
  return running;
}

}  // namespace megatrain
