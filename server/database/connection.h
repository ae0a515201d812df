// One connection to an SQLite file: statements with values in, rows out, absl::Status on every
// error.

#ifndef SERVER_DATABASE_CONNECTION_H_
#define SERVER_DATABASE_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace megatrain {

// Bytes, where a std::string would be text.
struct Blob {
  std::string bytes;
};

// What a statement's `?` stands for. Not std::variant: GCC 12 warns of every move of one.
class Value {
 public:
  enum class Kind { kNull, kInteger, kReal, kText, kBlob };

  Value() = default;  // NULL
  // Implicit, so that a statement's values are written as they are: {name, 3, 0.5}.
  // NOLINTBEGIN(google-explicit-constructor)
  Value(int64_t integer) : kind_(Kind::kInteger), integer_(integer) {}
  Value(int integer) : Value(int64_t{integer}) {}
  Value(double real) : kind_(Kind::kReal), real_(real) {}
  Value(std::string text) : kind_(Kind::kText), bytes_(std::move(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Blob blob) : kind_(Kind::kBlob), bytes_(std::move(blob.bytes)) {}
  // NOLINTEND(google-explicit-constructor)

  Kind kind() const { return kind_; }
  int64_t integer() const { return integer_; }
  double real() const { return real_; }
  const std::string& bytes() const { return bytes_; }

 private:
  Kind kind_ = Kind::kNull;
  int64_t integer_ = 0;
  double real_ = 0;
  std::string bytes_;
};

// A row of a result; valid only within the visitor's call. Columns count from 0.
class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}

  bool IsNull(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;  // also the bytes of a blob

 private:
  sqlite3_stmt* const statement_;
};

// Called for each row; an error ends the query and is its result.
using RowVisitor = std::function<absl::Status(const Row&)>;

// Not thread-safe: Database lends it to one caller at a time. Errors name the statement:
// RESOURCE_EXHAUSTED (DISK_FULL) for a full disk, ALREADY_EXISTS for a key that is taken,
// FAILED_PRECONDITION for another constraint, DATA_LOSS for a damaged file, UNAVAILABLE when
// another process holds the lock for longer than 5 s.
class Connection {
 public:
  // Creates the file when it is absent.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& path);
  ~Connection();

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // One statement without a result.
  absl::Status Execute(std::string_view sql, const std::vector<Value>& values = {});

  // One statement with a result.
  absl::Status Query(std::string_view sql, const std::vector<Value>& values,
                     const RowVisitor& visit);

  // Several statements without values, such as a schema.
  absl::Status ExecuteScript(const std::string& sql);

  // Rows that the last INSERT, UPDATE or DELETE touched.
  int64_t ChangeCount() const;

 private:
  using StatementOwner = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

  explicit Connection(sqlite3* handle) : handle_(handle) {}

  absl::StatusOr<StatementOwner> Prepare(std::string_view sql);
  absl::Status Bind(sqlite3_stmt* statement, const std::vector<Value>& values,
                    std::string_view sql);
  absl::Status Run(sqlite3_stmt* statement, std::string_view sql, const RowVisitor& visit);
  absl::Status Error(int code, std::string_view sql) const;

  sqlite3* const handle_;
  // Prepared statements at rest, by their text; one in use is out of the map.
  std::map<std::string, StatementOwner, std::less<>> idle_statements_;
};

}  // namespace megatrain

#endif  // SERVER_DATABASE_CONNECTION_H_
