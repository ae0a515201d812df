#include "server/api/checkpoint_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/checkpoint_stream.h"
#include "server/api/page.h"
#include "server/api/request_fields.h"
#include "server/api/request_key.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr char kForm[] = "jobs/*/checkpoints/*";
constexpr char kPinned[] = "pinned";

absl::Status CheckName(const std::string& name, const std::string& request_id = "") {
  std::vector<FieldViolation> violations;
  RequireName("name", name, {kForm}, violations);
  RequireRequestId(request_id, violations);
  return InvalidFields(violations);
}

// Of `pinned` and what only the server sets, which is ignored.
absl::Status CheckMask(const google::protobuf::FieldMask& mask) {
  std::vector<FieldViolation> violations;
  bool has_pinned = false;
  for (const std::string& path : mask.paths()) {
    has_pinned = has_pinned || path == kPinned;
    if (v1::Checkpoint::descriptor()->FindFieldByName(path) == nullptr) {
      violations.push_back(
          {"update_mask", absl::StrCat("\"", path, "\" is no field of a checkpoint")});
    }
  }
  if (!has_pinned && violations.empty()) {
    violations.push_back({"update_mask", "names nothing that can be changed: take pinned"});
  }
  return InvalidFields(violations);
}

}  // namespace

grpc::ServerUnaryReactor* CheckpointService::CreateCheckpoint(
    grpc::CallbackServerContext* context, const v1::CreateCheckpointRequest* request,
    v1::CreateCheckpointResponse* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Create(request); });
}

grpc::ServerUnaryReactor* CheckpointService::GetCheckpoint(grpc::CallbackServerContext* context,
                                                           const v1::GetCheckpointRequest* request,
                                                           v1::Checkpoint* response) {
  return parts_.calls.Read(context, response, [this, name = request->name()] { return Get(name); });
}

grpc::ServerUnaryReactor* CheckpointService::ListCheckpoints(
    grpc::CallbackServerContext* context, const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  return parts_.calls.Read(context, response, [this, request = *request] { return List(request); });
}

grpc::ServerUnaryReactor* CheckpointService::UpdateCheckpoint(
    grpc::CallbackServerContext* context, const v1::UpdateCheckpointRequest* request,
    v1::Checkpoint* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Update(request); });
}

grpc::ServerUnaryReactor* CheckpointService::DeleteCheckpoint(
    grpc::CallbackServerContext* context, const v1::DeleteCheckpointRequest* request,
    v1::DeleteCheckpointResponse* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Delete(request); });
}

grpc::ServerUnaryReactor* CheckpointService::VerifyCheckpoint(
    grpc::CallbackServerContext* context, const v1::VerifyCheckpointRequest* request,
    v1::VerifyCheckpointResponse* response) {
  return parts_.long_calls.Read(context, response,
                                [this, name = request->name()](const ByteProgress& progress) {
                                  return Verify(name, progress);
                                });
}

grpc::ServerWriteReactor<v1::ReadCheckpointResponse>* CheckpointService::ReadCheckpoint(
    grpc::CallbackServerContext*, const v1::ReadCheckpointRequest* request) {
  return FollowStream<v1::ReadCheckpointResponse>::Start(
      parts_.stream_executor, parts_.hub, request->name(), parts_.clock.MonotonicNow(),
      std::make_unique<CheckpointSource>(parts_.catalog, *request));
}

absl::StatusOr<v1::CreateCheckpointResponse> CheckpointService::Create(
    const v1::CreateCheckpointRequest& request) {
  std::vector<FieldViolation> violations;
  RequireName("parent", request.parent(), {"jobs/*"}, violations);
  RequireRequestId(request.request_id(), violations);
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  v1::CreateCheckpointResponse response;
  MT_ASSIGN_OR_RETURN(const int64_t sequence,
                      parts_.store.RecordWish(MakeRequestKey("CreateCheckpoint", request),
                                              request.parent(), {.kind = JobWish::Kind::kSave}));
  response.set_after_sequence(sequence);
  parts_.wake_controller();
  MT_ASSIGN_OR_RETURN(JobRecord record, parts_.store.Get(request.parent()));
  *response.mutable_job() = std::move(record.job);
  return response;
}

absl::StatusOr<v1::Checkpoint> CheckpointService::Get(const std::string& name) {
  MT_RETURN_IF_ERROR(CheckName(name));
  MT_ASSIGN_OR_RETURN(Numbered<v1::Checkpoint> row, parts_.catalog.Get(name));
  MT_ASSIGN_OR_RETURN(const std::vector<v1::CheckpointFile> files, parts_.catalog.Files(name));
  row.message.mutable_files()->Assign(files.begin(), files.end());
  return std::move(row.message);
}

absl::StatusOr<v1::ListCheckpointsResponse> CheckpointService::List(
    const v1::ListCheckpointsRequest& request) {
  const bool all = request.parent() == "jobs/-";
  if (!all) {
    std::vector<FieldViolation> violations;
    RequireName("parent", request.parent(), {"jobs/*"}, violations);
    MT_RETURN_IF_ERROR(InvalidFields(violations));
    MT_RETURN_IF_ERROR(parts_.store.Get(request.parent()).status());
  }
  const std::string arguments = absl::StrCat("ListCheckpoints ", request.parent());
  MT_ASSIGN_OR_RETURN(const PageRequest page,
                      ParsePageRequest(request.page_size(), request.page_token(), arguments));
  MT_ASSIGN_OR_RETURN(const int64_t before_number, NumberOfCursor(page));
  MT_ASSIGN_OR_RETURN(auto found, parts_.catalog.List(all ? std::string() : request.parent(),
                                                      before_number, page.size + 1));
  v1::ListCheckpointsResponse response;
  response.set_next_page_token(
      FillPage(found, page, arguments, [&response](v1::Checkpoint checkpoint) {
        *response.add_checkpoints() = std::move(checkpoint);
      }));
  return response;
}

absl::StatusOr<v1::Checkpoint> CheckpointService::Update(
    const v1::UpdateCheckpointRequest& request) {
  const v1::Checkpoint& wanted = request.checkpoint();
  MT_RETURN_IF_ERROR(CheckName(wanted.name(), request.request_id()));
  MT_RETURN_IF_ERROR(CheckMask(request.update_mask()));
  return parts_.catalog.SetPinned(MakeRequestKey("UpdateCheckpoint", request), wanted.name(),
                                  wanted.pinned(), wanted.etag());
}

absl::StatusOr<v1::DeleteCheckpointResponse> CheckpointService::Delete(
    const v1::DeleteCheckpointRequest& request) {
  MT_RETURN_IF_ERROR(CheckName(request.name(), request.request_id()));
  MT_RETURN_IF_ERROR(parts_.catalog.Delete(MakeRequestKey("DeleteCheckpoint", request),
                                           request.name(), request.validate_only()));
  return v1::DeleteCheckpointResponse();
}

absl::StatusOr<v1::VerifyCheckpointResponse> CheckpointService::Verify(
    const std::string& name, const ByteProgress& progress) {
  MT_RETURN_IF_ERROR(CheckName(name));
  return parts_.catalog.Verify(name, progress);
}

}  // namespace megatrain
