// A server on a real socket whose answers a test writes.

#ifndef CLIENT_LIB_SCRIPTED_SERVER_H_
#define CLIENT_LIB_SCRIPTED_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "grpcpp/grpcpp.h"
#include "megatrain/v1/checkpoint_service.grpc.pb.h"
#include "megatrain/v1/dataset_service.grpc.pb.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/model_service.grpc.pb.h"
#include "megatrain/v1/server_service.grpc.pb.h"
#include "megatrain/v1/upload_service.grpc.pb.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// An error with an ErrorInfo of this reason.
grpc::Status ErrorWithReason(grpc::StatusCode code, const std::string& message,
                             const std::string& reason);

// What a call does. Runs on the server's threads; UNIMPLEMENTED when a test sets none.
template <typename Request, typename Response>
using Answer = std::function<grpc::Status(const Request&, Response&)>;
template <typename Request, typename Message>
using StreamAnswer =
    std::function<grpc::Status(grpc::ServerContext&, const Request&, grpc::ServerWriter<Message>&)>;

// Keeps uploads in memory and breaks streams on command.
class ScriptedUploads final : public v1::UploadService::Service {
 public:
  // The next streams end in `status` after so many bytes each; later ones are not broken.
  void BreakStreams(std::vector<int64_t> after_bytes, const grpc::Status& status);

  std::string content(const std::string& sha256) const;
  int stream_count() const;
  // Of what arrived on all streams.
  int64_t received_bytes() const;

  grpc::Status StartUpload(grpc::ServerContext* context, const v1::StartUploadRequest* request,
                           v1::Upload* response) override;
  grpc::Status WriteUpload(grpc::ServerContext* context,
                           grpc::ServerReader<v1::WriteUploadRequest>* reader,
                           v1::Upload* response) override;
  grpc::Status GetUpload(grpc::ServerContext* context, const v1::GetUploadRequest* request,
                         v1::Upload* response) override;
  grpc::Status FinalizeUpload(grpc::ServerContext* context,
                              const v1::FinalizeUploadRequest* request,
                              v1::Upload* response) override;

 private:
  struct Stored {
    v1::Upload upload;
    std::string content;
  };

  grpc::Status Take(const v1::WriteUploadRequest& chunk, Stored& stored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Stored> uploads_ ABSL_GUARDED_BY(mutex_);  // by name
  std::vector<int64_t> breaks_ ABSL_GUARDED_BY(mutex_);
  grpc::Status break_status_ ABSL_GUARDED_BY(mutex_);
  int stream_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct ScriptedJobs final : public v1::JobService::Service {
  Answer<v1::CreateJobRequest, v1::Job> create;
  Answer<v1::GetJobRequest, v1::Job> get;
  Answer<v1::ListJobsRequest, v1::ListJobsResponse> list;
  Answer<v1::PlanJobRequest, v1::Plan> plan;
  Answer<v1::CancelJobRequest, v1::Job> cancel;
  Answer<v1::PauseJobRequest, v1::Job> pause;
  Answer<v1::ResumeJobRequest, v1::Job> resume;
  Answer<v1::ForkJobRequest, v1::Job> fork;
  StreamAnswer<v1::WatchJobRequest, v1::JobEvent> watch;
  StreamAnswer<v1::StreamLogsRequest, v1::LogChunk> logs;

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::Job* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status PlanJob(grpc::ServerContext* context, const v1::PlanJobRequest* request,
                       v1::Plan* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status PauseJob(grpc::ServerContext* context, const v1::PauseJobRequest* request,
                        v1::Job* response) override;
  grpc::Status ResumeJob(grpc::ServerContext* context, const v1::ResumeJobRequest* request,
                         v1::Job* response) override;
  grpc::Status ForkJob(grpc::ServerContext* context, const v1::ForkJobRequest* request,
                       v1::Job* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override;
  grpc::Status StreamLogs(grpc::ServerContext* context, const v1::StreamLogsRequest* request,
                          grpc::ServerWriter<v1::LogChunk>* writer) override;
};

struct ScriptedCheckpoints final : public v1::CheckpointService::Service {
  Answer<v1::CreateCheckpointRequest, v1::CreateCheckpointResponse> create;
  Answer<v1::GetCheckpointRequest, v1::Checkpoint> get;
  Answer<v1::ListCheckpointsRequest, v1::ListCheckpointsResponse> list;
  Answer<v1::UpdateCheckpointRequest, v1::Checkpoint> update;
  Answer<v1::DeleteCheckpointRequest, v1::DeleteCheckpointResponse> remove;
  Answer<v1::VerifyCheckpointRequest, v1::VerifyCheckpointResponse> verify;
  StreamAnswer<v1::ReadCheckpointRequest, v1::ReadCheckpointResponse> read;

  grpc::Status CreateCheckpoint(grpc::ServerContext* context,
                                const v1::CreateCheckpointRequest* request,
                                v1::CreateCheckpointResponse* response) override;
  grpc::Status GetCheckpoint(grpc::ServerContext* context, const v1::GetCheckpointRequest* request,
                             v1::Checkpoint* response) override;
  grpc::Status ListCheckpoints(grpc::ServerContext* context,
                               const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;
  grpc::Status UpdateCheckpoint(grpc::ServerContext* context,
                                const v1::UpdateCheckpointRequest* request,
                                v1::Checkpoint* response) override;
  grpc::Status DeleteCheckpoint(grpc::ServerContext* context,
                                const v1::DeleteCheckpointRequest* request,
                                v1::DeleteCheckpointResponse* response) override;
  grpc::Status VerifyCheckpoint(grpc::ServerContext* context,
                                const v1::VerifyCheckpointRequest* request,
                                v1::VerifyCheckpointResponse* response) override;
  grpc::Status ReadCheckpoint(grpc::ServerContext* context,
                              const v1::ReadCheckpointRequest* request,
                              grpc::ServerWriter<v1::ReadCheckpointResponse>* writer) override;
};

struct ScriptedDatasets final : public v1::DatasetService::Service {
  Answer<v1::CreateDatasetRequest, v1::Dataset> create;
  Answer<v1::GetDatasetRequest, v1::Dataset> get;
  Answer<v1::ListDatasetsRequest, v1::ListDatasetsResponse> list;

  grpc::Status CreateDataset(grpc::ServerContext* context, const v1::CreateDatasetRequest* request,
                             v1::Dataset* response) override;
  grpc::Status GetDataset(grpc::ServerContext* context, const v1::GetDatasetRequest* request,
                          v1::Dataset* response) override;
  grpc::Status ListDatasets(grpc::ServerContext* context, const v1::ListDatasetsRequest* request,
                            v1::ListDatasetsResponse* response) override;
};

struct ScriptedModels final : public v1::ModelService::Service {
  Answer<v1::ImportModelRequest, v1::ModelVersion> import_model;
  Answer<v1::GetModelVersionRequest, v1::ModelVersion> get;
  Answer<v1::ListModelVersionsRequest, v1::ListModelVersionsResponse> list;
  Answer<v1::ExportModelRequest, v1::ExportModelResponse> export_model;

  grpc::Status ImportModel(grpc::ServerContext* context, const v1::ImportModelRequest* request,
                           v1::ModelVersion* response) override;
  grpc::Status GetModelVersion(grpc::ServerContext* context,
                               const v1::GetModelVersionRequest* request,
                               v1::ModelVersion* response) override;
  grpc::Status ListModelVersions(grpc::ServerContext* context,
                                 const v1::ListModelVersionsRequest* request,
                                 v1::ListModelVersionsResponse* response) override;
  grpc::Status ExportModel(grpc::ServerContext* context, const v1::ExportModelRequest* request,
                           v1::ExportModelResponse* response) override;
};

struct ScriptedStatus final : public v1::ServerService::Service {
  Answer<v1::GetServerRequest, v1::Server> get;

  grpc::Status GetServer(grpc::ServerContext* context, const v1::GetServerRequest* request,
                         v1::Server* response) override;
};

// Set the answers, then Start.
class ScriptedServer {
 public:
  ~ScriptedServer();

  // Listens on loopback: on a free port, on the same one again after Stop.
  void Start();

  // Cuts every connection.
  void Stop();

  std::string address() const;  // after the first Start

  ScriptedJobs jobs;
  ScriptedCheckpoints checkpoints;
  ScriptedDatasets datasets;
  ScriptedModels models;
  ScriptedStatus status;
  ScriptedUploads uploads;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace megatrain

#endif  // CLIENT_LIB_SCRIPTED_SERVER_H_
