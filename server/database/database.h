// The daemon's one SQLite file: schema, one writer, consistent reads.

#ifndef SERVER_DATABASE_DATABASE_H_
#define SERVER_DATABASE_DATABASE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "server/database/connection.h"

namespace megatrain {

// One step of the schema. Steps are numbered by their place in the program's whole list, which
// only grows at its end: `PRAGMA user_version` says how many a file has had.
struct Migration {
  std::string name;  // for messages
  std::string sql;   // runs in one transaction; tables are STRICT
};

// Thread-safe. WAL with synchronous = FULL: what Write returned OK for survives a crash. Calls
// block on the disk: never from a gRPC reaction.
class Database {
 public:
  // Opens or creates the file and brings its schema up to `migrations`, after a copy of the old
  // file to `<path>.before-<version>`. FAILED_PRECONDITION when the file is of a newer program.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const std::vector<Migration>& migrations);

  using Work = std::function<absl::Status(Connection&)>;

  // Runs `work` in one transaction, one at a time: all of it is durable when this returns OK,
  // else none of it happened. Never call Write or Read from `work`.
  absl::Status Write(const Work& work);

  // Runs `work`, which only reads, on one consistent state of what was committed.
  absl::Status Read(const Work& work);

 private:
  Database(std::unique_ptr<Connection> writer, std::unique_ptr<Connection> reader);

  Mutex writer_mutex_;
  const std::unique_ptr<Connection> writer_ ABSL_PT_GUARDED_BY(writer_mutex_);
  Mutex reader_mutex_;
  const std::unique_ptr<Connection> reader_ ABSL_PT_GUARDED_BY(reader_mutex_);
};

}  // namespace megatrain

#endif  // SERVER_DATABASE_DATABASE_H_
