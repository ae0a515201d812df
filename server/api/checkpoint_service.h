// CheckpointService: checks, converts, records wishes; the catalogue and the controller act.

#ifndef SERVER_API_CHECKPOINT_SERVICE_H_
#define SERVER_API_CHECKPOINT_SERVICE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint_service.grpc.pb.h"
#include "runtime/base/clock.h"
#include "server/api/follow_stream.h"
#include "server/api/unary_calls.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/executor/executor.h"
#include "server/jobs/job_store.h"

namespace megatrain {

class CheckpointService final : public v1::CheckpointService::CallbackService {
 public:
  // All outlive the gRPC server.
  struct Parts {
    UnaryCalls& calls;
    UnaryCalls& long_calls;  // on threads of their own
    Executor& stream_executor;
    FollowHub& hub;
    CheckpointCatalog& catalog;
    JobStore& store;
    const Clock& clock;
    std::function<void()> wake_controller;
  };

  explicit CheckpointService(const Parts& parts) : parts_(parts) {}

  grpc::ServerUnaryReactor* CreateCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CreateCheckpointRequest* request,
                                             v1::CreateCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::GetCheckpointRequest* request,
                                          v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* UpdateCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::UpdateCheckpointRequest* request,
                                             v1::Checkpoint* response) override;
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* VerifyCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::VerifyCheckpointRequest* request,
                                             v1::VerifyCheckpointResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadCheckpointResponse>* ReadCheckpoint(
      grpc::CallbackServerContext* context, const v1::ReadCheckpointRequest* request) override;

 private:
  absl::StatusOr<v1::CreateCheckpointResponse> Create(const v1::CreateCheckpointRequest& request);
  absl::StatusOr<v1::Checkpoint> Get(const std::string& name);
  absl::StatusOr<v1::ListCheckpointsResponse> List(const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::Checkpoint> Update(const v1::UpdateCheckpointRequest& request);
  absl::StatusOr<v1::DeleteCheckpointResponse> Delete(const v1::DeleteCheckpointRequest& request);
  absl::StatusOr<v1::VerifyCheckpointResponse> Verify(const std::string& name,
                                                      const ByteProgress& progress);

  const Parts parts_;
};

}  // namespace megatrain

#endif  // SERVER_API_CHECKPOINT_SERVICE_H_
