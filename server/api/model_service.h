// ModelService: checks requests and converts; server/models does the work.

#ifndef SERVER_API_MODEL_SERVICE_H_
#define SERVER_API_MODEL_SERVICE_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "megatrain/v1/model_service.grpc.pb.h"
#include "runtime/base/byte_progress.h"
#include "server/api/unary_calls.h"
#include "server/database/request_key.h"
#include "server/models/model_store.h"

namespace megatrain {

class ModelService final : public v1::ModelService::CallbackService {
 public:
  // Exports a checkpoint of that name to that path.
  using ExportCheckpoint = std::function<absl::StatusOr<v1::ModelVersion>(
      const RequestKey& key, const std::string& name, const std::string& path,
      const ByteProgress& progress)>;

  // Exports are `long_calls`. All outlive the gRPC server.
  ModelService(UnaryCalls& calls, UnaryCalls& long_calls, ModelStore& models,
               ExportCheckpoint export_checkpoint)
      : calls_(calls),
        long_calls_(long_calls),
        models_(models),
        export_checkpoint_(std::move(export_checkpoint)) {}

  grpc::ServerUnaryReactor* ImportModel(grpc::CallbackServerContext* context,
                                        const v1::ImportModelRequest* request,
                                        v1::ModelVersion* response) override;
  grpc::ServerUnaryReactor* GetModelVersion(grpc::CallbackServerContext* context,
                                            const v1::GetModelVersionRequest* request,
                                            v1::ModelVersion* response) override;
  grpc::ServerUnaryReactor* ListModelVersions(grpc::CallbackServerContext* context,
                                              const v1::ListModelVersionsRequest* request,
                                              v1::ListModelVersionsResponse* response) override;
  grpc::ServerUnaryReactor* ExportModel(grpc::CallbackServerContext* context,
                                        const v1::ExportModelRequest* request,
                                        v1::ExportModelResponse* response) override;

 private:
  absl::StatusOr<v1::ModelVersion> Import(const v1::ImportModelRequest& request);
  absl::StatusOr<v1::ModelVersion> Get(const std::string& name);
  absl::StatusOr<v1::ListModelVersionsResponse> List(const v1::ListModelVersionsRequest& request);
  absl::StatusOr<v1::ExportModelResponse> Export(const v1::ExportModelRequest& request,
                                                 const ByteProgress& progress);

  UnaryCalls& calls_;
  UnaryCalls& long_calls_;
  ModelStore& models_;
  const ExportCheckpoint export_checkpoint_;
};

}  // namespace megatrain

#endif  // SERVER_API_MODEL_SERVICE_H_
