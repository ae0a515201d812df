// UploadService: checks requests and converts; server/uploads does the work.

#ifndef SERVER_API_UPLOAD_SERVICE_H_
#define SERVER_API_UPLOAD_SERVICE_H_

#include "absl/status/statusor.h"
#include "megatrain/v1/upload_service.grpc.pb.h"
#include "server/api/unary_calls.h"
#include "server/uploads/upload_store.h"

namespace megatrain {

class UploadService final : public v1::UploadService::CallbackService {
 public:
  // Both outlive the gRPC server.
  UploadService(UnaryCalls& calls, UploadStore& uploads) : calls_(calls), uploads_(uploads) {}

  grpc::ServerUnaryReactor* StartUpload(grpc::CallbackServerContext* context,
                                        const v1::StartUploadRequest* request,
                                        v1::Upload* response) override;
  // One piece of a stream is in memory at a time: the next is read when it is written.
  grpc::ServerReadReactor<v1::WriteUploadRequest>* WriteUpload(grpc::CallbackServerContext* context,
                                                               v1::Upload* response) override;
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context,
                                      const v1::GetUploadRequest* request,
                                      v1::Upload* response) override;
  grpc::ServerUnaryReactor* FinalizeUpload(grpc::CallbackServerContext* context,
                                           const v1::FinalizeUploadRequest* request,
                                           v1::Upload* response) override;

 private:
  absl::StatusOr<v1::Upload> Start(const v1::StartUploadRequest& request);

  UnaryCalls& calls_;
  UploadStore& uploads_;
};

}  // namespace megatrain

#endif  // SERVER_API_UPLOAD_SERVICE_H_
