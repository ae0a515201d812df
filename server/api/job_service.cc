#include "server/api/job_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/job_streams.h"
#include "server/api/page.h"
#include "server/api/request_key.h"
#include "server/errors/errors.h"
#include "server/jobs/scheduling_policy.h"
#include "server/names/resource_name.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

constexpr size_t kMaxDisplayNameBytes = 256;
constexpr size_t kMaxRequestIdBytes = 64;
constexpr int kMaxLabels = 64;
constexpr size_t kMaxLabelBytes = 63;  // of a value; a key is an ID
// A cancel is answered once the controller has taken it in: at its next tick.
constexpr absl::Duration kCancelWait = absl::Seconds(10);
constexpr absl::Duration kCancelLook = absl::Seconds(1);

absl::Status CheckJobName(const std::string& name) {
  if (MatchResourceName("jobs/*", name).has_value()) {
    return absl::OkStatus();
  }
  return InvalidFields({{"name", absl::StrCat("\"", name, "\" is no name of the form jobs/{job}: ",
                                              "an ID is ", kResourceIdRule)}});
}

absl::Status CheckRequestId(const std::string& request_id) {
  return request_id.size() <= kMaxRequestIdBytes
             ? absl::OkStatus()
             : InvalidFields({{"request_id", "is longer than 64 bytes: take a UUID"}});
}

absl::Status CheckCreate(const v1::CreateJobRequest& request) {
  std::vector<FieldViolation> violations;
  if (!request.job_id().empty() && !IsResourceId(request.job_id())) {
    violations.push_back(
        {"job_id", absl::StrCat("\"", request.job_id(), "\" is no ID: ", kResourceIdRule)});
  }
  if (request.display_name().size() > kMaxDisplayNameBytes) {
    violations.push_back({"display_name", "is longer than 256 bytes"});
  }
  if (request.labels_size() > kMaxLabels) {
    violations.push_back({"labels", "are more than 64"});
  }
  for (const auto& [key, value] : request.labels()) {
    if (!IsResourceId(key) || value.size() > kMaxLabelBytes) {
      violations.push_back(
          {absl::StrCat("labels.", key.substr(0, kMaxLabelBytes)),
           absl::StrCat("a key is ", kResourceIdRule, "; a value has at most 63 bytes")});
    }
  }
  MT_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  return InvalidFields(violations);
}

}  // namespace

grpc::ServerUnaryReactor* JobService::CreateJob(grpc::CallbackServerContext* context,
                                                const v1::CreateJobRequest* request,
                                                v1::Job* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Create(request); });
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request, v1::Job* response) {
  return parts_.calls.Read(context, response, [this, name = request->name()] { return Get(name); });
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  return parts_.calls.Read(context, response, [this, request = *request] { return List(request); });
}

grpc::ServerUnaryReactor* JobService::PlanJob(grpc::CallbackServerContext* context,
                                              const v1::PlanJobRequest* request,
                                              v1::Plan* response) {
  return parts_.calls.Read(context, response, [this, request = *request] {
    return parts_.admission.Plan(request.spec(), request.model_config_json(),
                                 request.machine());
  });
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::CancelJobRequest* request,
                                                v1::Job* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Cancel(request); });
}

grpc::ServerWriteReactor<v1::JobEvent>* JobService::WatchJob(grpc::CallbackServerContext*,
                                                             const v1::WatchJobRequest* request) {
  return FollowStream<v1::JobEvent>::Start(
      parts_.stream_executor, parts_.hub, request->name(), parts_.clock.MonotonicNow(),
      std::make_unique<JobEventSource>(parts_.store, request->name(), request->after_sequence()));
}

grpc::ServerWriteReactor<v1::LogChunk>* JobService::StreamLogs(
    grpc::CallbackServerContext*, const v1::StreamLogsRequest* request) {
  return FollowStream<v1::LogChunk>::Start(
      parts_.stream_executor, parts_.hub, request->name(), parts_.clock.MonotonicNow(),
      std::make_unique<LogSource>(parts_.store, parts_.log, *request));
}

absl::StatusOr<v1::Job> JobService::Create(v1::CreateJobRequest request) {
  MT_RETURN_IF_ERROR(CheckCreate(request));
  const RequestKey key = MakeRequestKey("CreateJob", request);
  // Before admission, which a repeat might not pass any more.
  MT_ASSIGN_OR_RETURN(std::optional<v1::Job> known, parts_.store.FindCreated(key));
  if (known.has_value()) {
    return *std::move(known);
  }
  if (request.job_id().empty()) {
    request.set_job_id(NewResourceId("job"));
  }
  v1::Job job = MakeJob(request);
  MT_ASSIGN_OR_RETURN(
      *job.mutable_plan(),
      parts_.admission.Admit(*job.mutable_spec(), absl::StrCat("models/", request.job_id())));
  if (request.validate_only()) {
    return parts_.store.Get(job.name()).ok() ? absl::StatusOr<v1::Job>(ResourceExists(job.name()))
                                             : job;
  }
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, parts_.store.Active());
  job.set_queue_position(WaitingJobs(active));
  MT_ASSIGN_OR_RETURN(job, parts_.store.Create(key, job));
  parts_.on_submitted();
  parts_.wake_controller();
  return job;
}

v1::Job JobService::MakeJob(const v1::CreateJobRequest& request) const {
  v1::Job job;
  job.set_name(absl::StrCat("jobs/", request.job_id()));
  job.set_uid(NewUid());
  job.set_display_name(request.display_name());
  *job.mutable_labels() = request.labels();
  *job.mutable_create_time() = TimestampOf(parts_.clock.WallNow());
  *job.mutable_update_time() = job.create_time();
  *job.mutable_spec() = request.spec();
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_attempt(1);
  return job;
}

absl::StatusOr<v1::Job> JobService::Get(const std::string& name) {
  MT_RETURN_IF_ERROR(CheckJobName(name));
  MT_ASSIGN_OR_RETURN(JobRecord record, parts_.store.Get(name));
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> jobs, parts_.store.Active());
  record.job.set_queue_position(QueuePosition(jobs, name));
  return std::move(record.job);
}

absl::StatusOr<v1::ListJobsResponse> JobService::List(const v1::ListJobsRequest& request) {
  std::string arguments = "jobs";
  JobStore::Query query;
  for (const int state : request.states()) {
    absl::StrAppend(&arguments, ",", state);
    query.states.push_back(static_cast<v1::JobState>(state));
  }
  MT_ASSIGN_OR_RETURN(const PageRequest page,
                      ParsePageRequest(request.page_size(), request.page_token(), arguments));
  if (!page.cursor.empty() && !absl::SimpleAtoi(page.cursor, &query.before_acceptance)) {
    return InvalidFields({{"page_token", "is not one that this server gave"}});
  }
  query.limit = page.size + 1;  // one more tells whether there is another page
  MT_ASSIGN_OR_RETURN(std::vector<JobRecord> records, parts_.store.List(query));
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, parts_.store.Active());
  v1::ListJobsResponse response;
  if (static_cast<int>(records.size()) > page.size) {
    records.pop_back();
    response.set_next_page_token(MakePageToken(absl::StrCat(records.back().acceptance), arguments));
  }
  for (JobRecord& record : records) {
    record.job.set_queue_position(QueuePosition(active, record.job.name()));
    *response.add_jobs() = std::move(record.job);
  }
  return response;
}

absl::StatusOr<v1::Job> JobService::Cancel(const v1::CancelJobRequest& request) {
  MT_RETURN_IF_ERROR(CheckJobName(request.name()));
  MT_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  MT_RETURN_IF_ERROR(parts_.store.WishCancel(MakeRequestKey("CancelJob", request), request.name()));
  parts_.wake_controller();
  const absl::Duration end = parts_.clock.MonotonicNow() + kCancelWait;
  while (true) {
    const int64_t version = parts_.hub.Version();
    MT_ASSIGN_OR_RETURN(v1::Job job, Get(request.name()));
    if (job.state() == v1::JOB_STATE_CANCELLING || job.state() == v1::JOB_STATE_CANCELLED ||
        parts_.clock.MonotonicNow() > end) {
      return job;
    }
    // It ended by itself before the wish was seen.
    MT_RETURN_IF_ERROR(CheckCancellable(job));
    parts_.hub.WaitPast(version, kCancelLook);
  }
}

}  // namespace megatrain
