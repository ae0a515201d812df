#include "client/lib/scripted_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"

namespace megatrain {
namespace {

template <typename Request, typename Response>
grpc::Status Give(const Answer<Request, Response>& answer, const Request* request,
                  Response* response) {
  return answer ? answer(*request, *response)
                : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "the test has no answer for this");
}

template <typename Request, typename Message>
grpc::Status Give(const StreamAnswer<Request, Message>& answer, grpc::ServerContext* context,
                  const Request* request, grpc::ServerWriter<Message>* writer) {
  return answer ? answer(*context, *request, *writer)
                : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "the test has no answer for this");
}

}  // namespace

grpc::Status ErrorWithReason(grpc::StatusCode code, const std::string& message,
                             const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("megatrain");
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(code, message, details.SerializeAsString());
}

void ScriptedUploads::BreakStreams(std::vector<int64_t> after_bytes, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  breaks_ = std::move(after_bytes);
  break_status_ = status;
}

std::string ScriptedUploads::content(const std::string& sha256) const {
  MutexLock lock(&mutex_);
  const auto found = uploads_.find("uploads/" + sha256);
  return found == uploads_.end() ? "" : found->second.content;
}

int ScriptedUploads::stream_count() const {
  MutexLock lock(&mutex_);
  return stream_count_;
}

int64_t ScriptedUploads::received_bytes() const {
  MutexLock lock(&mutex_);
  return received_bytes_;
}

grpc::Status ScriptedUploads::StartUpload(grpc::ServerContext*,
                                          const v1::StartUploadRequest* request,
                                          v1::Upload* response) {
  MutexLock lock(&mutex_);
  Stored& stored = uploads_["uploads/" + request->sha256()];
  stored.upload.set_name("uploads/" + request->sha256());
  stored.upload.set_size_bytes(request->size_bytes());
  stored.upload.set_sha256(request->sha256());
  *response = stored.upload;
  return grpc::Status::OK;
}

grpc::Status ScriptedUploads::Take(const v1::WriteUploadRequest& chunk, Stored& stored) {
  if (Crc32c(chunk.data()) != chunk.crc32c() || chunk.data().size() > (size_t{1} << 20)) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad chunk");
  }
  if (chunk.offset_bytes() != stored.upload.committed_bytes()) {
    return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "wrong offset");
  }
  stored.content += chunk.data();
  stored.upload.set_committed_bytes(static_cast<int64_t>(stored.content.size()));
  received_bytes_ += static_cast<int64_t>(chunk.data().size());
  return grpc::Status::OK;
}

grpc::Status ScriptedUploads::WriteUpload(grpc::ServerContext*,
                                          grpc::ServerReader<v1::WriteUploadRequest>* reader,
                                          v1::Upload* response) {
  int64_t left = -1;  // bytes until this stream breaks
  grpc::Status broken;
  {
    MutexLock lock(&mutex_);
    ++stream_count_;
    broken = break_status_;
    if (!breaks_.empty()) {
      left = breaks_.front();
      breaks_.erase(breaks_.begin());
    }
  }
  std::string name;
  v1::WriteUploadRequest chunk;
  while (left != 0 && reader->Read(&chunk)) {
    MutexLock lock(&mutex_);
    name = chunk.name().empty() ? name : chunk.name();
    if (grpc::Status taken = Take(chunk, uploads_[name]); !taken.ok()) {
      return taken;
    }
    *response = uploads_[name].upload;
    if (left > 0) {
      left = std::max<int64_t>(0, left - static_cast<int64_t>(chunk.data().size()));
    }
  }
  return left == 0 ? broken : grpc::Status::OK;
}

grpc::Status ScriptedUploads::GetUpload(grpc::ServerContext*, const v1::GetUploadRequest* request,
                                        v1::Upload* response) {
  MutexLock lock(&mutex_);
  *response = uploads_[request->name()].upload;
  return grpc::Status::OK;
}

grpc::Status ScriptedUploads::FinalizeUpload(grpc::ServerContext*,
                                             const v1::FinalizeUploadRequest* request,
                                             v1::Upload* response) {
  MutexLock lock(&mutex_);
  uploads_[request->name()].upload.set_finalized(true);
  *response = uploads_[request->name()].upload;
  return grpc::Status::OK;
}

grpc::Status ScriptedJobs::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                     v1::Job* response) {
  return Give(create, request, response);
}

grpc::Status ScriptedJobs::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                  v1::Job* response) {
  return Give(get, request, response);
}

grpc::Status ScriptedJobs::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                    v1::ListJobsResponse* response) {
  return Give(list, request, response);
}

grpc::Status ScriptedJobs::PlanJob(grpc::ServerContext*, const v1::PlanJobRequest* request,
                                   v1::Plan* response) {
  return Give(plan, request, response);
}

grpc::Status ScriptedJobs::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                     v1::Job* response) {
  return Give(cancel, request, response);
}

grpc::Status ScriptedJobs::PauseJob(grpc::ServerContext*, const v1::PauseJobRequest* request,
                                    v1::Job* response) {
  return Give(pause, request, response);
}

grpc::Status ScriptedJobs::ResumeJob(grpc::ServerContext*, const v1::ResumeJobRequest* request,
                                     v1::Job* response) {
  return Give(resume, request, response);
}

grpc::Status ScriptedJobs::ForkJob(grpc::ServerContext*, const v1::ForkJobRequest* request,
                                   v1::Job* response) {
  return Give(fork, request, response);
}

grpc::Status ScriptedJobs::WatchJob(grpc::ServerContext* context,
                                    const v1::WatchJobRequest* request,
                                    grpc::ServerWriter<v1::JobEvent>* writer) {
  return Give(watch, context, request, writer);
}

grpc::Status ScriptedJobs::StreamLogs(grpc::ServerContext* context,
                                      const v1::StreamLogsRequest* request,
                                      grpc::ServerWriter<v1::LogChunk>* writer) {
  return Give(logs, context, request, writer);
}

grpc::Status ScriptedCheckpoints::CreateCheckpoint(grpc::ServerContext*,
                                                   const v1::CreateCheckpointRequest* request,
                                                   v1::CreateCheckpointResponse* response) {
  return Give(create, request, response);
}

grpc::Status ScriptedCheckpoints::GetCheckpoint(grpc::ServerContext*,
                                                const v1::GetCheckpointRequest* request,
                                                v1::Checkpoint* response) {
  return Give(get, request, response);
}

grpc::Status ScriptedCheckpoints::ListCheckpoints(grpc::ServerContext*,
                                                  const v1::ListCheckpointsRequest* request,
                                                  v1::ListCheckpointsResponse* response) {
  return Give(list, request, response);
}

grpc::Status ScriptedCheckpoints::UpdateCheckpoint(grpc::ServerContext*,
                                                   const v1::UpdateCheckpointRequest* request,
                                                   v1::Checkpoint* response) {
  return Give(update, request, response);
}

grpc::Status ScriptedCheckpoints::DeleteCheckpoint(grpc::ServerContext*,
                                                   const v1::DeleteCheckpointRequest* request,
                                                   v1::DeleteCheckpointResponse* response) {
  return Give(remove, request, response);
}

grpc::Status ScriptedCheckpoints::VerifyCheckpoint(grpc::ServerContext*,
                                                   const v1::VerifyCheckpointRequest* request,
                                                   v1::VerifyCheckpointResponse* response) {
  return Give(verify, request, response);
}

grpc::Status ScriptedCheckpoints::ReadCheckpoint(
    grpc::ServerContext* context, const v1::ReadCheckpointRequest* request,
    grpc::ServerWriter<v1::ReadCheckpointResponse>* writer) {
  return Give(read, context, request, writer);
}

grpc::Status ScriptedDatasets::CreateDataset(grpc::ServerContext*,
                                             const v1::CreateDatasetRequest* request,
                                             v1::Dataset* response) {
  return Give(create, request, response);
}

grpc::Status ScriptedDatasets::GetDataset(grpc::ServerContext*,
                                          const v1::GetDatasetRequest* request,
                                          v1::Dataset* response) {
  return Give(get, request, response);
}

grpc::Status ScriptedDatasets::ListDatasets(grpc::ServerContext*,
                                            const v1::ListDatasetsRequest* request,
                                            v1::ListDatasetsResponse* response) {
  return Give(list, request, response);
}

grpc::Status ScriptedModels::ImportModel(grpc::ServerContext*,
                                         const v1::ImportModelRequest* request,
                                         v1::ModelVersion* response) {
  return Give(import_model, request, response);
}

grpc::Status ScriptedModels::GetModelVersion(grpc::ServerContext*,
                                             const v1::GetModelVersionRequest* request,
                                             v1::ModelVersion* response) {
  return Give(get, request, response);
}

grpc::Status ScriptedModels::ListModelVersions(grpc::ServerContext*,
                                               const v1::ListModelVersionsRequest* request,
                                               v1::ListModelVersionsResponse* response) {
  return Give(list, request, response);
}

grpc::Status ScriptedModels::ExportModel(grpc::ServerContext*,
                                         const v1::ExportModelRequest* request,
                                         v1::ExportModelResponse* response) {
  return Give(export_model, request, response);
}

grpc::Status ScriptedStatus::GetServer(grpc::ServerContext*, const v1::GetServerRequest* request,
                                       v1::Server* response) {
  return Give(get, request, response);
}

ScriptedServer::~ScriptedServer() { Stop(); }

void ScriptedServer::Start() {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&jobs);
  builder.RegisterService(&checkpoints);
  builder.RegisterService(&datasets);
  builder.RegisterService(&models);
  builder.RegisterService(&status);
  builder.RegisterService(&uploads);
  server_ = builder.BuildAndStart();
  MT_CHECK(server_ != nullptr && port_ != 0);
}

void ScriptedServer::Stop() {
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::time_point());  // now: a deadline that has passed
    server_->Wait();
    server_.reset();
  }
}

std::string ScriptedServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

}  // namespace megatrain
