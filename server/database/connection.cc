#include "server/database/connection.h"

#include <sqlite3.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

// Every text of a statement that this program uses fits; the bound is against a caller that
// would write values into the text.
constexpr size_t kMaxIdleStatements = 256;

absl::StatusCode CodeFor(int code, int system_error) {
  if (code == SQLITE_CONSTRAINT_PRIMARYKEY || code == SQLITE_CONSTRAINT_UNIQUE) {
    return absl::StatusCode::kAlreadyExists;
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_IOERR:
      return system_error == ENOSPC || system_error == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                              : absl::StatusCode::kUnknown;
    case SQLITE_CONSTRAINT:
      return absl::StatusCode::kFailedPrecondition;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status MakeError(sqlite3* handle, int code, std::string_view what) {
  const absl::Status status(CodeFor(code, sqlite3_system_errno(handle)),
                            absl::StrCat("database: ", sqlite3_errmsg(handle), " (code ", code,
                                         ") in: ", std::string(what)));
  return absl::IsResourceExhausted(status) ? WithReason(status, "DISK_FULL") : status;
}

// SQLITE_TRANSIENT's cast is not ours to warn about.
const sqlite3_destructor_type kCopy = SQLITE_TRANSIENT;

int BindOne(sqlite3_stmt* statement, int index, const Value& value) {
  const std::string& bytes = value.bytes();
  switch (value.kind()) {
    case Value::Kind::kNull:
      return sqlite3_bind_null(statement, index);
    case Value::Kind::kInteger:
      return sqlite3_bind_int64(statement, index, value.integer());
    case Value::Kind::kReal:
      return sqlite3_bind_double(statement, index, value.real());
    case Value::Kind::kText:
      return sqlite3_bind_text64(statement, index, bytes.data(), bytes.size(), kCopy, SQLITE_UTF8);
    case Value::Kind::kBlob:
      return sqlite3_bind_blob64(statement, index, bytes.data(), bytes.size(), kCopy);
  }
  return SQLITE_MISUSE;
}

}  // namespace

bool Row::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t Row::Int(int column) const { return sqlite3_column_int64(statement_, column); }

double Row::Real(int column) const { return sqlite3_column_double(statement_, column); }

std::string Row::Text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int size_bytes = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? std::string() : std::string(bytes, size_bytes);
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      path.c_str(), &handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  if (code != SQLITE_OK) {
    const absl::Status error = MakeError(handle, code, absl::StrCat("opening ", path));
    sqlite3_close_v2(handle);
    return error;
  }
  std::unique_ptr<Connection> connection(new Connection(handle));
  MT_RETURN_IF_ERROR(
      connection->ExecuteScript("PRAGMA busy_timeout = 5000;"
                                "PRAGMA journal_mode = WAL;"
                                "PRAGMA synchronous = FULL;"
                                "PRAGMA foreign_keys = ON;"));
  return connection;
}

Connection::~Connection() {
  idle_statements_.clear();
  sqlite3_close_v2(handle_);
}

absl::Status Connection::Execute(std::string_view sql, const std::vector<Value>& values) {
  return Query(sql, values, [](const Row&) { return absl::OkStatus(); });
}

absl::Status Connection::Query(std::string_view sql, const std::vector<Value>& values,
                               const RowVisitor& visit) {
  MT_ASSIGN_OR_RETURN(StatementOwner statement, Prepare(sql));
  absl::Status status = Bind(statement.get(), values, sql);
  if (status.ok()) {
    status = Run(statement.get(), sql, visit);
  }
  sqlite3_reset(statement.get());  // its code repeats what Run saw
  sqlite3_clear_bindings(statement.get());
  if (idle_statements_.size() < kMaxIdleStatements) {
    idle_statements_.emplace(std::string(sql), std::move(statement));
  }
  return status;
}

absl::Status Connection::ExecuteScript(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code, sql);
}

int64_t Connection::ChangeCount() const { return sqlite3_changes64(handle_); }

absl::StatusOr<Connection::StatementOwner> Connection::Prepare(std::string_view sql) {
  if (const auto idle = idle_statements_.find(sql); idle != idle_statements_.end()) {
    StatementOwner statement = std::move(idle->second);
    idle_statements_.erase(idle);
    return statement;
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) {
    return Error(code, sql);
  }
  return StatementOwner(statement, &sqlite3_finalize);
}

absl::Status Connection::Bind(sqlite3_stmt* statement, const std::vector<Value>& values,
                              std::string_view sql) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = BindOne(statement, static_cast<int>(i) + 1, values[i]);
    if (code != SQLITE_OK) {
      return Error(code, sql);
    }
  }
  return absl::OkStatus();
}

absl::Status Connection::Run(sqlite3_stmt* statement, std::string_view sql,
                             const RowVisitor& visit) {
  while (true) {
    const int code = sqlite3_step(statement);
    if (code == SQLITE_DONE) {
      return absl::OkStatus();
    }
    if (code != SQLITE_ROW) {
      return Error(code, sql);
    }
    MT_RETURN_IF_ERROR(visit(Row(statement)));
  }
}

absl::Status Connection::Error(int code, std::string_view sql) const {
  return MakeError(handle_, code, sql);
}

}  // namespace megatrain
