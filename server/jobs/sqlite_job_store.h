// JobStore in the daemon's SQLite file.

#ifndef SERVER_JOBS_SQLITE_JOB_STORE_H_
#define SERVER_JOBS_SQLITE_JOB_STORE_H_

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "server/database/database.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// The tables of SqliteJobStore, in this order; RequestLogMigration's must be there too.
Migration JobStoreMigration();
Migration JobWishMigration();
Migration JobResumeMigration();

class SqliteJobStore final : public JobStore {
 public:
  // Both outlive this. The clock dates answers to requests.
  SqliteJobStore(Database& database, const Clock& clock) : database_(database), clock_(clock) {}

  absl::StatusOr<v1::Job> Create(const RequestKey& key, const v1::Job& job) override;
  absl::StatusOr<std::optional<v1::Job>> FindCreated(const RequestKey& key) override;
  absl::StatusOr<JobRecord> Get(const std::string& name) override;
  absl::StatusOr<std::vector<JobRecord>> List(const Query& query) override;
  absl::StatusOr<std::vector<JobRecord>> Active() override;
  absl::StatusOr<int64_t> RecordWish(const RequestKey& key, const std::string& name,
                                     const JobWish& wish) override;
  absl::Status Update(const JobRecord& record, std::vector<v1::JobEvent> events) override;
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& name, int64_t after_sequence,
                                                   int limit) override;

 private:
  Database& database_;
  const Clock& clock_;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_SQLITE_JOB_STORE_H_
