// JobService: checks, converts, records wishes; the controller acts.

#ifndef SERVER_API_JOB_SERVICE_H_
#define SERVER_API_JOB_SERVICE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "runtime/base/clock.h"
#include "server/api/follow_stream.h"
#include "server/api/unary_calls.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/executor/executor.h"
#include "server/jobs/fork.h"
#include "server/jobs/job_log.h"
#include "server/jobs/job_store.h"
#include "server/planning/job_admission.h"

namespace megatrain {

class JobService final : public v1::JobService::CallbackService {
 public:
  // All outlive the gRPC server.
  struct Parts {
    UnaryCalls& calls;
    Executor& stream_executor;
    FollowHub& hub;  // its topics are the names of jobs
    JobStore& store;
    CheckpointCatalog& checkpoints;
    const JobLog& log;
    const JobAdmission& admission;
    const Clock& clock;
    std::function<void()> wake_controller;
    std::function<void()> on_submitted;  // a job was accepted
  };

  explicit JobService(const Parts& parts) : parts_(parts) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request, v1::Plan* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* ForkJob(grpc::CallbackServerContext* context,
                                    const v1::ForkJobRequest* request, v1::Job* response) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::LogChunk>* StreamLogs(grpc::CallbackServerContext* context,
                                                     const v1::StreamLogsRequest* request) override;

 private:
  absl::StatusOr<v1::Job> Create(v1::CreateJobRequest request);
  absl::StatusOr<v1::Job> Get(const std::string& name);
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::Job> Pause(const v1::PauseJobRequest& request);
  absl::StatusOr<v1::Job> Resume(const v1::ResumeJobRequest& request);
  absl::Status CheckNoneIsPinnedAfter(const v1::Checkpoint& start);
  absl::StatusOr<v1::Job> Fork(const v1::ForkJobRequest& request);

  // `origin`: what the new job comes from, if it is a fork.
  absl::StatusOr<v1::Job> Accept(const RequestKey& key, v1::CreateJobRequest request,
                                 const ForkOrigin* origin);
  v1::Job MakeJob(const v1::CreateJobRequest& request) const;
  // Until the controller has taken a wish in: OK of `taken`, once it is true.
  absl::StatusOr<v1::Job> WaitFor(const std::string& name,
                                  const std::function<absl::StatusOr<bool>(const v1::Job&)>& taken);

  const Parts parts_;
};

}  // namespace megatrain

#endif  // SERVER_API_JOB_SERVICE_H_
