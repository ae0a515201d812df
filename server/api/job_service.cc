#include "server/api/job_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/api/job_streams.h"
#include "server/api/page.h"
#include "server/api/request_fields.h"
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
// A wish is answered once the controller has taken it in: at its next tick.
constexpr absl::Duration kWishWait = absl::Seconds(10);
constexpr absl::Duration kWishLook = absl::Seconds(1);

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
    return parts_.admission.Plan(request.spec(), request.model_config_json(), request.machine());
  });
}

grpc::ServerUnaryReactor* JobService::CancelJob(grpc::CallbackServerContext* context,
                                                const v1::CancelJobRequest* request,
                                                v1::Job* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Cancel(request); });
}

grpc::ServerUnaryReactor* JobService::PauseJob(grpc::CallbackServerContext* context,
                                               const v1::PauseJobRequest* request,
                                               v1::Job* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Pause(request); });
}

grpc::ServerUnaryReactor* JobService::ResumeJob(grpc::CallbackServerContext* context,
                                                const v1::ResumeJobRequest* request,
                                                v1::Job* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Resume(request); });
}

grpc::ServerUnaryReactor* JobService::ForkJob(grpc::CallbackServerContext* context,
                                              const v1::ForkJobRequest* request,
                                              v1::Job* response) {
  return parts_.calls.Mutate(context, response,
                             [this, request = *request] { return Fork(request); });
}

grpc::ServerWriteReactor<v1::JobEvent>* JobService::WatchJob(grpc::CallbackServerContext*,
                                                             const v1::WatchJobRequest* request) {
  return FollowStream<v1::JobEvent>::Start(
      parts_.stream_executor, parts_.hub, request->name(), parts_.clock.MonotonicNow(),
      std::make_unique<JobEventSource>(parts_.store, parts_.checkpoints, request->name(),
                                       request->after_sequence()));
}

grpc::ServerWriteReactor<v1::LogChunk>* JobService::StreamLogs(
    grpc::CallbackServerContext*, const v1::StreamLogsRequest* request) {
  return FollowStream<v1::LogChunk>::Start(
      parts_.stream_executor, parts_.hub, request->name(), parts_.clock.MonotonicNow(),
      std::make_unique<LogSource>(parts_.store, parts_.log, *request));
}

absl::StatusOr<v1::Job> JobService::Create(v1::CreateJobRequest request) {
  const RequestKey key = MakeRequestKey("CreateJob", request);
  return Accept(key, std::move(request), nullptr);
}

absl::StatusOr<v1::Job> JobService::Accept(const RequestKey& key, v1::CreateJobRequest request,
                                           const ForkOrigin* origin) {
  MT_RETURN_IF_ERROR(CheckCreate(request));
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
  if (origin != nullptr) {
    MT_RETURN_IF_ERROR(InvalidFields(CheckFork(job.spec(), *origin)));
    job.set_forked_from(origin->checkpoint.name());
    job.set_fork_mode(origin->mode);
  }
  if (request.validate_only()) {
    return parts_.store.Get(job.name()).ok() ? absl::StatusOr<v1::Job>(ResourceExists(job.name()))
                                             : job;
  }
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, parts_.store.Active());
  job.set_queue_position(JobsBefore(active, job));
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
  MT_RETURN_IF_ERROR(parts_.checkpoints.Describe({&record.job}));
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
  std::vector<v1::Job*> jobs;
  for (JobRecord& record : records) {
    record.job.set_queue_position(QueuePosition(active, record.job.name()));
    jobs.push_back(response.add_jobs());
    *jobs.back() = std::move(record.job);
  }
  MT_RETURN_IF_ERROR(parts_.checkpoints.Describe(jobs));
  return response;
}

absl::StatusOr<v1::Job> JobService::Cancel(const v1::CancelJobRequest& request) {
  MT_RETURN_IF_ERROR(CheckJobName(request.name()));
  MT_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  MT_RETURN_IF_ERROR(parts_.store
                         .RecordWish(MakeRequestKey("CancelJob", request), request.name(),
                                     {.kind = JobWish::Kind::kCancel})
                         .status());
  return WaitFor(request.name(), [](const v1::Job& job) -> absl::StatusOr<bool> {
    // It can end by itself before the wish is seen.
    MT_RETURN_IF_ERROR(CheckCancellable(job));
    return job.state() == v1::JOB_STATE_CANCELLING || job.state() == v1::JOB_STATE_CANCELLED;
  });
}

absl::StatusOr<v1::Job> JobService::Pause(const v1::PauseJobRequest& request) {
  MT_RETURN_IF_ERROR(CheckJobName(request.name()));
  MT_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  MT_RETURN_IF_ERROR(parts_.store
                         .RecordWish(MakeRequestKey("PauseJob", request), request.name(),
                                     {.kind = JobWish::Kind::kPause})
                         .status());
  return WaitFor(request.name(), [](const v1::Job& job) -> absl::StatusOr<bool> {
    MT_RETURN_IF_ERROR(CheckNotEnded(job));
    return job.held() || job.state() == v1::JOB_STATE_PAUSING ||
           job.state() == v1::JOB_STATE_PAUSED;
  });
}

absl::StatusOr<v1::Job> JobService::Resume(const v1::ResumeJobRequest& request) {
  MT_RETURN_IF_ERROR(CheckJobName(request.name()));
  MT_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  JobWish wish{.kind = JobWish::Kind::kResume, .start_checkpoint = request.checkpoint()};
  CheckpointInUse in_use;  // until the wish is recorded, which then keeps it
  if (!request.checkpoint().empty()) {
    if (!absl::StartsWith(request.checkpoint(), absl::StrCat(request.name(), "/checkpoints/"))) {
      return InvalidFields({{"checkpoint", absl::StrCat("\"", request.checkpoint(),
                                                        "\" is none of this job: fork it")}});
    }
    MT_ASSIGN_OR_RETURN(in_use, parts_.checkpoints.UseUndamaged(request.checkpoint()));
    MT_ASSIGN_OR_RETURN(wish.start_after_number, parts_.checkpoints.LastNumber(request.name()));
    MT_RETURN_IF_ERROR(CheckNoneIsPinnedAfter(*in_use));
  }
  MT_RETURN_IF_ERROR(
      parts_.store.RecordWish(MakeRequestKey("ResumeJob", request), request.name(), wish).status());
  return WaitFor(request.name(), [](const v1::Job& job) -> absl::StatusOr<bool> {
    return job.state() != v1::JOB_STATE_PAUSED && !job.held();
  });
}

// The job would come to their steps again, and write its own state over them.
absl::Status JobService::CheckNoneIsPinnedAfter(const v1::Checkpoint& start) {
  MT_ASSIGN_OR_RETURN(const std::vector<Numbered<v1::Checkpoint>> rows,
                      parts_.checkpoints.List(JobOfCheckpoint(start.name()), 0, -1));
  for (const auto& [number, row] : rows) {
    if (row.pinned() && row.damage().empty() && row.step() > start.step()) {
      return PreconditionFailed(
          row.name(), "CHECKPOINT_PINNED",
          absl::StrCat(row.name(), " is pinned, and a job that goes back to ", start.name(),
                       " would write over it: unpin it, or fork ", start.name()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> JobService::Fork(const v1::ForkJobRequest& request) {
  std::vector<FieldViolation> violations;
  RequireName("checkpoint", request.checkpoint(), {"jobs/*/checkpoints/*"}, violations);
  if (request.mode() != v1::FORK_MODE_FULL_STATE && request.mode() != v1::FORK_MODE_WEIGHTS) {
    violations.push_back({"mode", "is missing: take FORK_MODE_FULL_STATE or FORK_MODE_WEIGHTS"});
  }
  MT_RETURN_IF_ERROR(InvalidFields(violations));
  const RequestKey key = MakeRequestKey("ForkJob", request);
  MT_ASSIGN_OR_RETURN(std::optional<v1::Job> known, parts_.store.FindCreated(key));
  if (known.has_value()) {
    return *std::move(known);
  }
  // Until the fork is there, which then keeps it.
  MT_ASSIGN_OR_RETURN(const CheckpointInUse in_use,
                      parts_.checkpoints.UseUndamaged(request.checkpoint()));
  MT_ASSIGN_OR_RETURN(const JobRecord source,
                      parts_.store.Get(JobOfCheckpoint(request.checkpoint())));
  ForkOrigin origin{.checkpoint = *in_use, .spec = source.job.spec(), .mode = request.mode()};
  if (origin.mode == v1::FORK_MODE_FULL_STATE) {
    MT_ASSIGN_OR_RETURN(const TrainingOrder order, parts_.checkpoints.OrderOf(*in_use));
    origin.micro_batch_rows = order.micro_batch_rows;
  }
  v1::CreateJobRequest create;
  create.set_job_id(request.job_id());
  *create.mutable_spec() = request.has_spec() ? request.spec() : DefaultForkSpec(origin.spec);
  create.set_display_name(request.display_name());
  *create.mutable_labels() = request.labels();
  create.set_request_id(request.request_id());
  create.set_validate_only(request.validate_only());
  return Accept(key, std::move(create), &origin);
}

absl::StatusOr<v1::Job> JobService::WaitFor(
    const std::string& name, const std::function<absl::StatusOr<bool>(const v1::Job&)>& taken) {
  parts_.wake_controller();
  const absl::Duration end = parts_.clock.MonotonicNow() + kWishWait;
  while (true) {
    const int64_t version = parts_.hub.Version();
    MT_ASSIGN_OR_RETURN(v1::Job job, Get(name));
    MT_ASSIGN_OR_RETURN(const bool is_taken, taken(job));
    if (is_taken || parts_.clock.MonotonicNow() > end) {
      return job;
    }
    parts_.hub.WaitPast(version, kWishLook);
  }
}

}  // namespace megatrain
