// ServerService: what the server is and has.

#ifndef SERVER_API_SERVER_SERVICE_H_
#define SERVER_API_SERVER_SERVICE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "megatrain/v1/server_service.grpc.pb.h"
#include "server/api/unary_calls.h"

namespace megatrain {

class ServerService final : public v1::ServerService::CallbackService {
 public:
  // `describe` runs on the executor of `calls`; both outlive the gRPC server.
  ServerService(UnaryCalls& calls, std::function<absl::StatusOr<v1::Server>()> describe)
      : calls_(calls), describe_(std::move(describe)) {}

  grpc::ServerUnaryReactor* GetServer(grpc::CallbackServerContext* context,
                                      const v1::GetServerRequest*, v1::Server* response) override {
    return calls_.Read(context, response, [this] { return describe_(); });
  }

 private:
  UnaryCalls& calls_;
  const std::function<absl::StatusOr<v1::Server>()> describe_;
};

}  // namespace megatrain

#endif  // SERVER_API_SERVER_SERVICE_H_
