#include "server/api/job_streams.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"
#include "server/jobs/scheduling_policy.h"

namespace megatrain {
namespace {

constexpr int kEventsAtOnce = 64;
constexpr int64_t kLogChunkBytes = int64_t{256} << 10;

}  // namespace

absl::StatusOr<std::optional<v1::JobEvent>> JobEventSource::Next() {
  if (!snapshot_sent_) {
    MT_ASSIGN_OR_RETURN(v1::JobEvent snapshot, Snapshot());
    snapshot_sent_ = true;
    return snapshot;
  }
  if (ready_.empty()) {
    MT_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events,
                        store_.Events(name_, cursor_, kEventsAtOnce));
    ready_.assign(events.begin(), events.end());
  }
  if (ready_.empty()) {
    return FinalIfEnded();
  }
  v1::JobEvent event = std::move(ready_.front());
  ready_.pop_front();
  if (event_sent_ && event.sequence() != cursor_ + 1) {
    return SlowConsumer(Cursor());
  }
  cursor_ = event.sequence();
  event_sent_ = true;
  return event;
}

v1::JobEvent JobEventSource::Heartbeat() const {
  v1::JobEvent event;
  event.mutable_heartbeat();
  return event;
}

std::string JobEventSource::Cursor() const { return absl::StrCat(cursor_); }

absl::StatusOr<v1::JobEvent> JobEventSource::Snapshot() {
  if (cursor_ < 0) {
    return InvalidFields({{"after_sequence", "is negative: take 0 for all events"}});
  }
  MT_ASSIGN_OR_RETURN(JobRecord record, store_.Get(name_));
  if (cursor_ > record.last_sequence) {
    return WithReason(
        absl::OutOfRangeError(absl::StrCat("after_sequence ", cursor_, " is behind the newest, ",
                                           record.last_sequence)),
        "CURSOR_OUT_OF_RANGE", {{"last_sequence", absl::StrCat(record.last_sequence)}});
  }
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> jobs, store_.Active());
  MT_RETURN_IF_ERROR(checkpoints_.Describe({&record.job}));
  v1::JobEvent event;
  event.set_sequence(cursor_);
  *event.mutable_event_time() = record.job.update_time();
  *event.mutable_snapshot() = std::move(record.job);
  event.mutable_snapshot()->set_queue_position(QueuePosition(jobs, name_));
  return event;
}

absl::StatusOr<std::optional<v1::JobEvent>> JobEventSource::FinalIfEnded() {
  MT_ASSIGN_OR_RETURN(JobRecord record, store_.Get(name_));
  if (!IsFinal(record.job.state()) || cursor_ < record.last_sequence) {
    // With the second, events came between the two looks, and their news comes too.
    return std::nullopt;
  }
  MT_RETURN_IF_ERROR(checkpoints_.Describe({&record.job}));
  v1::JobEvent event;
  event.set_sequence(record.last_sequence);
  *event.mutable_event_time() = record.job.end_time();
  *event.mutable_final() = std::move(record.job);
  return event;
}

absl::StatusOr<std::optional<v1::LogChunk>> LogSource::Next() {
  // The state before the text: what a final job logged is in the file.
  MT_ASSIGN_OR_RETURN(const JobRecord record, store_.Get(request_.name()));
  MT_ASSIGN_OR_RETURN(std::string text,
                      log_.Read(JobIdOf(record.job), offset_bytes_, kLogChunkBytes));
  v1::LogChunk chunk;
  chunk.set_offset_bytes(offset_bytes_);
  if (!text.empty()) {
    offset_bytes_ += static_cast<int64_t>(text.size());
    chunk.set_data(std::move(text));
    return chunk;
  }
  if (!request_.follow() || IsFinal(record.job.state())) {
    chunk.set_end(true);
    return chunk;
  }
  return std::nullopt;
}

v1::LogChunk LogSource::Heartbeat() const {
  v1::LogChunk chunk;
  chunk.set_offset_bytes(offset_bytes_);
  return chunk;
}

std::string LogSource::Cursor() const { return absl::StrCat(offset_bytes_); }

}  // namespace megatrain
