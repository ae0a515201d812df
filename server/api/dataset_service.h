// DatasetService: checks requests and converts; server/datasets does the work.

#ifndef SERVER_API_DATASET_SERVICE_H_
#define SERVER_API_DATASET_SERVICE_H_

#include "absl/status/statusor.h"
#include "megatrain/v1/dataset_service.grpc.pb.h"
#include "server/api/unary_calls.h"
#include "server/datasets/dataset_store.h"

namespace megatrain {

class DatasetService final : public v1::DatasetService::CallbackService {
 public:
  // Both outlive the gRPC server.
  DatasetService(UnaryCalls& calls, DatasetStore& datasets) : calls_(calls), datasets_(datasets) {}

  grpc::ServerUnaryReactor* CreateDataset(grpc::CallbackServerContext* context,
                                          const v1::CreateDatasetRequest* request,
                                          v1::Dataset* response) override;
  grpc::ServerUnaryReactor* GetDataset(grpc::CallbackServerContext* context,
                                       const v1::GetDatasetRequest* request,
                                       v1::Dataset* response) override;
  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context,
                                         const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override;

 private:
  absl::StatusOr<v1::Dataset> Create(const v1::CreateDatasetRequest& request);
  absl::StatusOr<v1::Dataset> Get(const std::string& name);
  absl::StatusOr<v1::ListDatasetsResponse> List(const v1::ListDatasetsRequest& request);

  UnaryCalls& calls_;
  DatasetStore& datasets_;
};

}  // namespace megatrain

#endif  // SERVER_API_DATASET_SERVICE_H_
