#include "server/api/model_service.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/page.h"
#include "server/api/request_fields.h"
#include "server/api/request_key.h"
#include "server/errors/errors.h"
#include "server/names/resource_name.h"

namespace megatrain {
namespace {

constexpr char kCheckpointForm[] = "jobs/*/checkpoints/*";

const std::vector<std::string>& VersionForms() {
  static const std::vector<std::string>& forms =
      *new std::vector<std::string>{"models/*", "models/*/versions/*"};
  return forms;
}

}  // namespace

grpc::ServerUnaryReactor* ModelService::ImportModel(grpc::CallbackServerContext* context,
                                                    const v1::ImportModelRequest* request,
                                                    v1::ModelVersion* response) {
  return calls_.Mutate(context, response, [this, request = *request] { return Import(request); });
}

grpc::ServerUnaryReactor* ModelService::GetModelVersion(grpc::CallbackServerContext* context,
                                                        const v1::GetModelVersionRequest* request,
                                                        v1::ModelVersion* response) {
  return calls_.Read(context, response, [this, name = request->name()] { return Get(name); });
}

grpc::ServerUnaryReactor* ModelService::ListModelVersions(
    grpc::CallbackServerContext* context, const v1::ListModelVersionsRequest* request,
    v1::ListModelVersionsResponse* response) {
  return calls_.Read(context, response, [this, request = *request] { return List(request); });
}

grpc::ServerUnaryReactor* ModelService::ExportModel(grpc::CallbackServerContext* context,
                                                    const v1::ExportModelRequest* request,
                                                    v1::ExportModelResponse* response) {
  return long_calls_.Mutate(context, response,
                            [this, request = *request](const ByteProgress& progress) {
                              return Export(request, progress);
                            });
}

absl::StatusOr<v1::ModelVersion> ModelService::Import(const v1::ImportModelRequest& request) {
  std::vector<FieldViolation> violations;
  RequireId("model_id", request.model_id(), violations);
  RequireRequestId(request.request_id(), violations);
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  return models_.Import(MakeRequestKey("ImportModel", request),
                        {.model_id = request.model_id(),
                         .path = request.path(),
                         .validate_only = request.validate_only()});
}

absl::StatusOr<v1::ModelVersion> ModelService::Get(const std::string& name) {
  std::vector<FieldViolation> violations;
  RequireName("name", name, VersionForms(), violations);
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  return models_.Get(name);
}

absl::StatusOr<v1::ListModelVersionsResponse> ModelService::List(
    const v1::ListModelVersionsRequest& request) {
  const bool all = request.parent().empty() || request.parent() == "models/-";
  if (!all) {
    std::vector<FieldViolation> violations;
    RequireName("parent", request.parent(), {"models/*"}, violations);
    MT_RETURN_IF_ERROR(InvalidFields(violations));
  }
  const std::string arguments =
      absl::StrCat("ListModelVersions ", all ? std::string() : request.parent());
  MT_ASSIGN_OR_RETURN(const PageRequest page,
                      ParsePageRequest(request.page_size(), request.page_token(), arguments));
  MT_ASSIGN_OR_RETURN(const int64_t before_number, NumberOfCursor(page));
  MT_ASSIGN_OR_RETURN(auto found, models_.List(all ? std::string() : request.parent(),
                                               before_number, page.size + 1));
  v1::ListModelVersionsResponse response;
  response.set_next_page_token(
      FillPage(found, page, arguments, [&response](v1::ModelVersion version) {
        *response.add_model_versions() = std::move(version);
      }));
  return response;
}

absl::StatusOr<v1::ExportModelResponse> ModelService::Export(const v1::ExportModelRequest& request,
                                                             const ByteProgress& progress) {
  std::vector<FieldViolation> violations;
  std::vector<std::string> forms = VersionForms();
  forms.emplace_back(kCheckpointForm);
  RequireName("name", request.name(), forms, violations);
  RequireRequestId(request.request_id(), violations);
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  const RequestKey key = MakeRequestKey("ExportModel", request);
  const bool is_checkpoint = MatchResourceName(kCheckpointForm, request.name()).has_value();
  MT_ASSIGN_OR_RETURN(const v1::ModelVersion exported,
                      is_checkpoint
                          ? export_checkpoint_(key, request.name(), request.path(), progress)
                          : models_.Export(key, request.name(), request.path(), progress));
  v1::ExportModelResponse response;
  response.set_name(exported.name());
  response.set_path(exported.path());
  response.set_size_bytes(exported.size_bytes());
  return response;
}

}  // namespace megatrain
