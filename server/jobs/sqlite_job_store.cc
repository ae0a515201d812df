#include "server/jobs/sqlite_job_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr char kColumns[] =
    "acceptance, job, cancel_wished, last_sequence, revision, pause_wished, save_count, "
    "start_checkpoint, start_after_number, saves_answered, crash_count, resume_count";

absl::StatusOr<JobRecord> ReadRecord(const Row& row) {
  JobRecord record;
  record.acceptance = row.Int(0);
  if (!record.job.ParseFromString(row.Text(1))) {
    return absl::DataLossError(
        absl::StrCat("database: job number ", record.acceptance, " cannot be read"));
  }
  record.wishes.cancel = row.Int(2) != 0;
  record.last_sequence = row.Int(3);
  record.job.set_etag(std::to_string(row.Int(4)));
  record.wishes.pause = row.Int(5) != 0;
  record.wishes.save_count = row.Int(6);
  record.wishes.start_checkpoint = row.Text(7);
  record.wishes.start_after_number = row.Int(8);
  record.saves_answered = row.Int(9);
  record.crash_count = static_cast<int32_t>(row.Int(10));
  record.wishes.resume_count = row.Int(11);
  return record;
}

absl::StatusOr<std::vector<JobRecord>> Select(Connection& connection, const std::string& rest,
                                              const std::vector<Value>& values) {
  std::vector<JobRecord> records;
  MT_RETURN_IF_ERROR(connection.Query(absl::StrCat("SELECT ", kColumns, " FROM jobs ", rest),
                                      values, [&records](const Row& row) -> absl::Status {
                                        MT_ASSIGN_OR_RETURN(JobRecord record, ReadRecord(row));
                                        records.push_back(std::move(record));
                                        return absl::OkStatus();
                                      }));
  return records;
}

absl::StatusOr<JobRecord> SelectOne(Connection& connection, const std::string& name) {
  MT_ASSIGN_OR_RETURN(std::vector<JobRecord> records, Select(connection, "WHERE name = ?", {name}));
  return records.empty() ? absl::StatusOr<JobRecord>(ResourceNotFound(name))
                         : std::move(records.front());
}

absl::StatusOr<v1::Job> ParseAnswer(const std::string& answer) {
  v1::Job job;
  if (!job.ParseFromString(answer)) {
    return absl::DataLossError("database: the answer to a request cannot be read");
  }
  return job;
}

absl::Status InsertJob(Connection& connection, const v1::Job& job) {
  const absl::Status status = connection.Execute(
      "INSERT INTO jobs (name, state, job) VALUES (?, ?, ?)",
      {job.name(), static_cast<int64_t>(job.state()), Blob{job.SerializeAsString()}});
  return absl::IsAlreadyExists(status) ? ResourceExists(job.name()) : status;
}

absl::Status UpdateWishes(Connection& connection, const JobRecord& record) {
  const JobWishes& wishes = record.wishes;
  return connection.Execute(
      "UPDATE jobs SET cancel_wished = ?, pause_wished = ?, save_count = ?, start_checkpoint = ?, "
      "start_after_number = ?, resume_count = ?, revision = revision + 1 WHERE acceptance = ?",
      {int64_t{wishes.cancel}, int64_t{wishes.pause}, wishes.save_count, wishes.start_checkpoint,
       wishes.start_after_number, wishes.resume_count, record.acceptance});
}

absl::Status AppendEvents(Connection& connection, const JobRecord& stored,
                          std::vector<v1::JobEvent>& events) {
  int64_t sequence = stored.last_sequence;
  for (v1::JobEvent& event : events) {
    event.set_sequence(++sequence);
    MT_RETURN_IF_ERROR(
        connection.Execute("INSERT INTO job_events (acceptance, sequence, event) VALUES (?, ?, ?)",
                           {stored.acceptance, sequence, Blob{event.SerializeAsString()}}));
  }
  MT_RETURN_IF_ERROR(connection.Execute("UPDATE jobs SET last_sequence = ? WHERE acceptance = ?",
                                        {sequence, stored.acceptance}));
  return connection.Execute("DELETE FROM job_events WHERE acceptance = ? AND sequence <= ?",
                            {stored.acceptance, sequence - kMaxEventsPerJob});
}

}  // namespace

Migration JobStoreMigration() {
  return {"jobs", R"sql(
    CREATE TABLE jobs (
      acceptance INTEGER PRIMARY KEY AUTOINCREMENT,
      name TEXT NOT NULL UNIQUE,
      state INTEGER NOT NULL,
      job BLOB NOT NULL,
      cancel_wished INTEGER NOT NULL DEFAULT 0,
      last_sequence INTEGER NOT NULL DEFAULT 0,
      revision INTEGER NOT NULL DEFAULT 1
    ) STRICT;
    CREATE INDEX jobs_by_state ON jobs (state, acceptance);
    CREATE TABLE job_events (
      acceptance INTEGER NOT NULL REFERENCES jobs (acceptance) ON DELETE CASCADE,
      sequence INTEGER NOT NULL,
      event BLOB NOT NULL,
      PRIMARY KEY (acceptance, sequence)
    ) STRICT, WITHOUT ROWID;
  )sql"};
}

Migration JobWishMigration() {
  return {"job_wishes", R"sql(
    ALTER TABLE jobs ADD COLUMN pause_wished INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN save_count INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN start_checkpoint TEXT NOT NULL DEFAULT '';
    ALTER TABLE jobs ADD COLUMN start_after_number INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN saves_asked INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN crash_count INTEGER NOT NULL DEFAULT 0;
  )sql"};
}

Migration JobResumeMigration() {
  return {"job_resumes", R"sql(
    ALTER TABLE jobs ADD COLUMN resume_count INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs RENAME COLUMN saves_asked TO saves_answered;
  )sql"};
}

absl::StatusOr<std::optional<v1::Job>> SqliteJobStore::FindCreated(const RequestKey& key) {
  std::optional<v1::Job> job;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(const std::optional<std::string> answer, FindAnswer(connection, key));
    if (answer.has_value()) {
      MT_ASSIGN_OR_RETURN(job, ParseAnswer(*answer));
    }
    return absl::OkStatus();
  }));
  return job;
}

absl::StatusOr<v1::Job> SqliteJobStore::Create(const RequestKey& key, const v1::Job& job) {
  MT_ASSIGN_OR_RETURN(const std::string answer,
                      WriteOnce(database_, key, clock_.WallNow(),
                                [&job](Connection& connection) -> absl::StatusOr<std::string> {
                                  MT_RETURN_IF_ERROR(InsertJob(connection, job));
                                  MT_ASSIGN_OR_RETURN(JobRecord record,
                                                      SelectOne(connection, job.name()));
                                  return record.job.SerializeAsString();
                                }));
  return ParseAnswer(answer);
}

absl::StatusOr<JobRecord> SqliteJobStore::Get(const std::string& name) {
  JobRecord record;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(record, SelectOne(connection, name));
    return absl::OkStatus();
  }));
  return record;
}

absl::StatusOr<std::vector<JobRecord>> SqliteJobStore::List(const Query& query) {
  std::string condition = "WHERE acceptance < ?";
  std::vector<Value> values = {query.before_acceptance == 0 ? INT64_MAX : query.before_acceptance};
  for (size_t i = 0; i < query.states.size(); ++i) {
    absl::StrAppend(&condition, i == 0 ? " AND state IN (?" : ", ?");
    values.push_back(static_cast<int64_t>(query.states[i]));
  }
  absl::StrAppend(&condition, query.states.empty() ? "" : ")", " ORDER BY acceptance DESC LIMIT ?");
  values.push_back(int64_t{query.limit});
  std::vector<JobRecord> records;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(records, Select(connection, condition, values));
    return absl::OkStatus();
  }));
  return records;
}

absl::StatusOr<std::vector<JobRecord>> SqliteJobStore::Active() {
  std::vector<JobRecord> records;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(records,
                        Select(connection, "WHERE state NOT IN (?, ?, ?) ORDER BY acceptance",
                               {int64_t{v1::JOB_STATE_SUCCEEDED}, int64_t{v1::JOB_STATE_FAILED},
                                int64_t{v1::JOB_STATE_CANCELLED}}));
    return absl::OkStatus();
  }));
  return records;
}

absl::StatusOr<int64_t> SqliteJobStore::RecordWish(const RequestKey& key, const std::string& name,
                                                   const JobWish& wish) {
  MT_ASSIGN_OR_RETURN(const std::string sequence,
                      WriteOnce(database_, key, clock_.WallNow(),
                                [&](Connection& connection) -> absl::StatusOr<std::string> {
                                  MT_ASSIGN_OR_RETURN(JobRecord record,
                                                      SelectOne(connection, name));
                                  MT_RETURN_IF_ERROR(ApplyWish(wish, record));
                                  MT_RETURN_IF_ERROR(UpdateWishes(connection, record));
                                  return std::to_string(record.last_sequence);
                                }));
  return std::stoll(sequence);
}

absl::Status SqliteJobStore::Update(const JobRecord& record, std::vector<v1::JobEvent> events) {
  return database_.Write([&](Connection& connection) -> absl::Status {
    const std::string& name = record.job.name();
    MT_ASSIGN_OR_RETURN(const JobRecord stored, SelectOne(connection, name));
    MT_RETURN_IF_ERROR(connection.Execute(
        "UPDATE jobs SET job = ?, state = ?, saves_answered = ?, crash_count = ?, "
        "revision = revision + 1 WHERE acceptance = ?",
        {Blob{record.job.SerializeAsString()}, static_cast<int64_t>(record.job.state()),
         record.saves_answered, int64_t{record.crash_count}, stored.acceptance}));
    return events.empty() ? absl::OkStatus() : AppendEvents(connection, stored, events);
  });
}

absl::StatusOr<std::vector<v1::JobEvent>> SqliteJobStore::Events(const std::string& name,
                                                                 int64_t after_sequence,
                                                                 int limit) {
  std::vector<v1::JobEvent> events;
  MT_RETURN_IF_ERROR(database_.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(const JobRecord record, SelectOne(connection, name));
    return connection.Query(
        "SELECT event FROM job_events WHERE acceptance = ? AND sequence > ? ORDER BY sequence "
        "LIMIT ?",
        {record.acceptance, after_sequence, int64_t{limit}}, [&events](const Row& row) {
          return events.emplace_back().ParseFromString(row.Text(0))
                     ? absl::OkStatus()
                     : absl::DataLossError("database: an event of a job cannot be read");
        });
  }));
  return events;
}

}  // namespace megatrain
