#include "server/jobs/memory_job_store.h"

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {

absl::StatusOr<v1::Job> MemoryJobStore::Create(const RequestKey& key, const v1::Job& job) {
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(const Answer* known, FindAnswer(key));
  if (known != nullptr) {
    v1::Job first;
    first.ParseFromString(known->bytes);
    return first;
  }
  if (entries_.contains(job.name())) {
    return ResourceExists(job.name());
  }
  Entry& entry = entries_[job.name()];
  entry.record.job = job;
  entry.record.acceptance = ++last_acceptance_;
  const v1::Job answer = Visible(entry).job;
  Remember(key, answer.SerializeAsString());
  return answer;
}

absl::StatusOr<std::optional<v1::Job>> MemoryJobStore::FindCreated(const RequestKey& key) {
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(const Answer* known, FindAnswer(key));
  std::optional<v1::Job> job;
  if (known != nullptr) {
    job.emplace().ParseFromString(known->bytes);
  }
  return job;
}

absl::StatusOr<JobRecord> MemoryJobStore::Get(const std::string& name) {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? absl::StatusOr<JobRecord>(ResourceNotFound(name))
                                 : Visible(entry->second);
}

absl::StatusOr<std::vector<JobRecord>> MemoryJobStore::List(const Query& query) {
  MutexLock lock(&mutex_);
  std::vector<const Entry*> found;
  for (const auto& [name, entry] : entries_) {
    const bool state_fits =
        query.states.empty() ||
        std::count(query.states.begin(), query.states.end(), entry.record.job.state()) > 0;
    if (state_fits &&
        (query.before_acceptance == 0 || entry.record.acceptance < query.before_acceptance)) {
      found.push_back(&entry);
    }
  }
  std::sort(found.begin(), found.end(), [](const Entry* a, const Entry* b) {
    return a->record.acceptance > b->record.acceptance;
  });
  found.resize(std::min(found.size(), static_cast<size_t>(query.limit)));
  return AllVisible(found);
}

absl::StatusOr<std::vector<JobRecord>> MemoryJobStore::Active() {
  MutexLock lock(&mutex_);
  std::vector<const Entry*> found;
  for (const auto& [name, entry] : entries_) {
    if (!IsFinal(entry.record.job.state())) {
      found.push_back(&entry);
    }
  }
  std::sort(found.begin(), found.end(), [](const Entry* a, const Entry* b) {
    return a->record.acceptance < b->record.acceptance;
  });
  return AllVisible(found);
}

absl::StatusOr<int64_t> MemoryJobStore::RecordWish(const RequestKey& key, const std::string& name,
                                                   const JobWish& wish) {
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(const Answer* known, FindAnswer(key));
  if (known != nullptr) {
    return std::stoll(known->bytes);
  }
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return ResourceNotFound(name);
  }
  MT_RETURN_IF_ERROR(ApplyWish(wish, entry->second.record));
  ++entry->second.revision;
  const int64_t sequence = entry->second.record.last_sequence;
  Remember(key, std::to_string(sequence));
  return sequence;
}

absl::Status MemoryJobStore::Update(const JobRecord& record, std::vector<v1::JobEvent> events) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(record.job.name());
  if (found == entries_.end()) {
    return ResourceNotFound(record.job.name());
  }
  Entry& entry = found->second;
  entry.record.job = record.job;
  entry.record.saves_answered = record.saves_answered;
  entry.record.crash_count = record.crash_count;
  ++entry.revision;
  for (v1::JobEvent& event : events) {
    event.set_sequence(++entry.record.last_sequence);
    entry.events.push_back(std::move(event));
  }
  while (entry.events.size() > kMaxEventsPerJob) {
    entry.events.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::JobEvent>> MemoryJobStore::Events(const std::string& name,
                                                                 int64_t after_sequence,
                                                                 int limit) {
  MutexLock lock(&mutex_);
  std::vector<v1::JobEvent> found;
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return ResourceNotFound(name);
  }
  for (const v1::JobEvent& event : entry->second.events) {
    if (event.sequence() > after_sequence && found.size() < static_cast<size_t>(limit)) {
      found.push_back(event);
    }
  }
  return found;
}

JobRecord MemoryJobStore::Visible(const Entry& entry) {
  JobRecord record = entry.record;
  record.job.set_etag(std::to_string(entry.revision));
  return record;
}

std::vector<JobRecord> MemoryJobStore::AllVisible(const std::vector<const Entry*>& entries) {
  std::vector<JobRecord> records;
  records.reserve(entries.size());
  for (const Entry* entry : entries) {
    records.push_back(Visible(*entry));
  }
  return records;
}

absl::StatusOr<const MemoryJobStore::Answer*> MemoryJobStore::FindAnswer(
    const RequestKey& key) const {
  const auto answer = answers_.find({key.method, key.request_id});
  if (key.request_id.empty() || answer == answers_.end()) {
    return nullptr;
  }
  if (answer->second.payload != key.payload) {
    return WithReason(absl::InvalidArgumentError("request_id was used for another request"),
                      "REQUEST_ID_REUSED");
  }
  return &answer->second;
}

void MemoryJobStore::Remember(const RequestKey& key, std::string answer) {
  if (!key.request_id.empty()) {
    answers_[{key.method, key.request_id}] = Answer{key.payload, std::move(answer)};
  }
}

}  // namespace megatrain
