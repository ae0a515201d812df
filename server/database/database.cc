#include "server/database/database.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// Runs `work` between `begin` and COMMIT; anything that fails is rolled back.
absl::Status InTransaction(Connection& connection, std::string_view begin,
                           const Database::Work& work) {
  MT_RETURN_IF_ERROR(connection.Execute(begin));
  absl::Status status = work(connection);
  if (status.ok()) {
    status = connection.Execute("COMMIT");
  }
  if (!status.ok()) {
    // Fails when SQLite has rolled back by itself, as it does on a full disk.
    connection.Execute("ROLLBACK").IgnoreError();
  }
  return status;
}

absl::StatusOr<int64_t> SchemaVersion(Connection& connection) {
  int64_t version = 0;
  MT_RETURN_IF_ERROR(connection.Query("PRAGMA user_version", {}, [&version](const Row& row) {
    version = row.Int(0);
    return absl::OkStatus();
  }));
  return version;
}

absl::Status Apply(Connection& connection, const Migration& migration, int64_t new_version) {
  const absl::Status status =
      InTransaction(connection, "BEGIN IMMEDIATE", [&](Connection& transaction) {
        MT_RETURN_IF_ERROR(transaction.ExecuteScript(migration.sql));
        return transaction.ExecuteScript(absl::StrCat("PRAGMA user_version = ", new_version));
      });
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat("migration ", migration.name, ": ",
                                                                status.message()));
}

// A copy of the file as it is now, complete or not there: whoever died within an earlier one left
// nothing that is in the way.
absl::Status CopyTo(const std::string& copy, Connection& connection) {
  PosixFileSystem files;
  const std::string partial = copy + ".partial";
  MT_RETURN_IF_ERROR(files.RemoveTree(partial));
  MT_RETURN_IF_ERROR(connection.Execute("VACUUM INTO ?", {partial}));
  MT_ASSIGN_OR_RETURN(const auto file, files.OpenForWriting(partial, /*append=*/true));
  MT_RETURN_IF_ERROR(file->Sync());
  MT_RETURN_IF_ERROR(file->Close());
  MT_RETURN_IF_ERROR(files.Rename(partial, copy));
  return files.SyncFolder(std::filesystem::path(copy).parent_path());
}

absl::Status Migrate(Connection& connection, const std::string& path,
                     const std::vector<Migration>& migrations) {
  MT_ASSIGN_OR_RETURN(const int64_t version, SchemaVersion(connection));
  const int64_t wanted = static_cast<int64_t>(migrations.size());
  if (version > wanted) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has schema ", version, ", this program knows ", wanted,
                     ": it was written by a newer program; use that one"));
  }
  if (version > 0 && version < wanted) {
    MT_RETURN_IF_ERROR(CopyTo(absl::StrCat(path, ".before-", wanted), connection));
  }
  for (int64_t next = version; next < wanted; ++next) {
    MT_RETURN_IF_ERROR(Apply(connection, migrations[next], next + 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const std::vector<Migration>& migrations) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> writer, Connection::Open(path));
  MT_RETURN_IF_ERROR(Migrate(*writer, path, migrations));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> reader, Connection::Open(path));
  return std::unique_ptr<Database>(new Database(std::move(writer), std::move(reader)));
}

Database::Database(std::unique_ptr<Connection> writer, std::unique_ptr<Connection> reader)
    : writer_(std::move(writer)), reader_(std::move(reader)) {}

absl::Status Database::Write(const Work& work) {
  MutexLock lock(&writer_mutex_);
  return InTransaction(*writer_, "BEGIN IMMEDIATE", work);
}

absl::Status Database::Read(const Work& work) {
  MutexLock lock(&reader_mutex_);
  return InTransaction(*reader_, "BEGIN", work);
}

}  // namespace megatrain
