#include "server/api/dataset_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/page.h"
#include "server/api/request_fields.h"
#include "server/api/request_key.h"
#include "server/errors/errors.h"

namespace megatrain {

grpc::ServerUnaryReactor* DatasetService::CreateDataset(grpc::CallbackServerContext* context,
                                                        const v1::CreateDatasetRequest* request,
                                                        v1::Dataset* response) {
  return calls_.Mutate(context, response, [this, request = *request] { return Create(request); });
}

grpc::ServerUnaryReactor* DatasetService::GetDataset(grpc::CallbackServerContext* context,
                                                     const v1::GetDatasetRequest* request,
                                                     v1::Dataset* response) {
  return calls_.Read(context, response, [this, name = request->name()] { return Get(name); });
}

grpc::ServerUnaryReactor* DatasetService::ListDatasets(grpc::CallbackServerContext* context,
                                                       const v1::ListDatasetsRequest* request,
                                                       v1::ListDatasetsResponse* response) {
  return calls_.Read(context, response, [this, request = *request] { return List(request); });
}

absl::StatusOr<v1::Dataset> DatasetService::Create(const v1::CreateDatasetRequest& request) {
  std::vector<FieldViolation> violations;
  RequireId("dataset_id", request.dataset_id(), violations);
  RequireName("upload", request.upload(), {"uploads/*"}, violations);
  RequireRequestId(request.request_id(), violations);
  const std::string& on_bad_row = request.on_bad_row();
  if (!on_bad_row.empty() && on_bad_row != "error" && on_bad_row != "skip") {
    violations.push_back(
        {"on_bad_row", absl::StrCat("\"", on_bad_row, "\" is neither error nor skip")});
  }
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  return datasets_.Create(MakeRequestKey("CreateDataset", request),
                          {.dataset_id = request.dataset_id(),
                           .upload = request.upload(),
                           .skip_bad_rows = on_bad_row == "skip",
                           .validate_only = request.validate_only()});
}

absl::StatusOr<v1::Dataset> DatasetService::Get(const std::string& name) {
  std::vector<FieldViolation> violations;
  RequireName("name", name, {"datasets/*"}, violations);
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  return datasets_.Get(name);
}

absl::StatusOr<v1::ListDatasetsResponse> DatasetService::List(
    const v1::ListDatasetsRequest& request) {
  const std::string arguments = "ListDatasets";
  MT_ASSIGN_OR_RETURN(const PageRequest page,
                      ParsePageRequest(request.page_size(), request.page_token(), arguments));
  MT_ASSIGN_OR_RETURN(const int64_t before_number, NumberOfCursor(page));
  MT_ASSIGN_OR_RETURN(auto found, datasets_.List(before_number, page.size + 1));
  v1::ListDatasetsResponse response;
  response.set_next_page_token(FillPage(found, page, arguments, [&response](v1::Dataset dataset) {
    *response.add_datasets() = std::move(dataset);
  }));
  return response;
}

}  // namespace megatrain
