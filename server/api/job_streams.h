// What WatchJob and StreamLogs send.

#ifndef SERVER_API_JOB_STREAMS_H_
#define SERVER_API_JOB_STREAMS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.pb.h"
#include "server/api/follow_stream.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/jobs/job_log.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// The job as it is, then its events behind the cursor, then, when it is final, the job once more.
// A snapshot's sequence is the cursor that the stream starts from.
class JobEventSource final : public FollowSource<v1::JobEvent> {
 public:
  JobEventSource(JobStore& store, CheckpointCatalog& checkpoints, std::string name,
                 int64_t after_sequence)
      : store_(store), checkpoints_(checkpoints), name_(std::move(name)), cursor_(after_sequence) {}

  // NOT_FOUND; OUT_OF_RANGE for a cursor behind the newest event; SLOW_CONSUMER when events that
  // were not sent yet are gone.
  absl::StatusOr<std::optional<v1::JobEvent>> Next() override;
  bool IsLast(const v1::JobEvent& event) const override { return event.has_final(); }
  v1::JobEvent Heartbeat() const override;
  std::string Cursor() const override;

 private:
  absl::StatusOr<v1::JobEvent> Snapshot();
  absl::StatusOr<std::optional<v1::JobEvent>> FinalIfEnded();

  JobStore& store_;
  CheckpointCatalog& checkpoints_;
  const std::string name_;
  int64_t cursor_;
  bool snapshot_sent_ = false;
  bool event_sent_ = false;
  std::deque<v1::JobEvent> ready_;
};

// The log from an offset on; with `follow`, until the job is final.
class LogSource final : public FollowSource<v1::LogChunk> {
 public:
  LogSource(JobStore& store, const JobLog& log, const v1::StreamLogsRequest& request)
      : store_(store), log_(log), request_(request), offset_bytes_(request.offset_bytes()) {}

  // NOT_FOUND; OUT_OF_RANGE for an offset behind the end.
  absl::StatusOr<std::optional<v1::LogChunk>> Next() override;
  bool IsLast(const v1::LogChunk& chunk) const override { return chunk.end(); }
  v1::LogChunk Heartbeat() const override;
  std::string Cursor() const override;

 private:
  JobStore& store_;
  const JobLog& log_;
  const v1::StreamLogsRequest request_;
  int64_t offset_bytes_;
};

}  // namespace megatrain

#endif  // SERVER_API_JOB_STREAMS_H_
