#include "server/database/request_log.h"

#include <openssl/sha.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr absl::Duration kKeepAnswers = absl::Hours(7 * 24);

std::string Sha256(const std::string& payload) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(payload.data()), payload.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

absl::Status RememberAnswer(Connection& connection, const RequestKey& key, absl::Time now,
                            const std::string& answer) {
  MT_RETURN_IF_ERROR(connection.Execute("DELETE FROM request_log WHERE create_time_seconds < ?",
                                        {absl::ToUnixSeconds(now - kKeepAnswers)}));
  return connection.Execute("INSERT INTO request_log VALUES (?, ?, ?, ?, ?)",
                            {key.method, key.request_id, Blob{Sha256(key.payload)}, Blob{answer},
                             absl::ToUnixSeconds(now)});
}

}  // namespace

Migration RequestLogMigration() {
  return {"request_log", R"sql(
    CREATE TABLE request_log (
      method TEXT NOT NULL,
      request_id TEXT NOT NULL,
      payload_sha256 BLOB NOT NULL,
      answer BLOB NOT NULL,
      create_time_seconds INTEGER NOT NULL,
      PRIMARY KEY (method, request_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX request_log_by_time ON request_log (create_time_seconds);
  )sql"};
}

absl::StatusOr<std::optional<std::string>> FindAnswer(Connection& connection,
                                                      const RequestKey& key) {
  std::optional<std::string> answer;
  if (key.request_id.empty()) {
    return answer;
  }
  bool same_payload = true;
  MT_RETURN_IF_ERROR(connection.Query(
      "SELECT payload_sha256, answer FROM request_log WHERE method = ? AND request_id = ?",
      {key.method, key.request_id}, [&](const Row& row) {
        same_payload = row.Text(0) == Sha256(key.payload);
        answer = row.Text(1);
        return absl::OkStatus();
      }));
  if (!same_payload) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "request_id ", key.request_id, " was used for another ", key.method,
                          " request: take a new one for each request, the same for its repeats")),
                      "REQUEST_ID_REUSED",
                      {{"method", key.method}, {"request_id", key.request_id}});
  }
  return answer;
}

absl::StatusOr<std::string> WriteOnce(
    Database& database, const RequestKey& key, absl::Time now,
    const std::function<absl::StatusOr<std::string>(Connection&)>& effect) {
  std::string answer;
  MT_RETURN_IF_ERROR(database.Write([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(std::optional<std::string> known, FindAnswer(connection, key));
    if (known.has_value()) {
      answer = *std::move(known);
      return absl::OkStatus();
    }
    MT_ASSIGN_OR_RETURN(answer, effect(connection));
    return key.request_id.empty() ? absl::OkStatus() : RememberAnswer(connection, key, now, answer);
  }));
  return answer;
}

absl::StatusOr<std::optional<std::string>> FindAnswer(Database& database, const RequestKey& key) {
  std::optional<std::string> answer;
  if (key.request_id.empty()) {
    return answer;
  }
  MT_RETURN_IF_ERROR(database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(answer, FindAnswer(connection, key));
    return absl::OkStatus();
  }));
  return answer;
}

}  // namespace megatrain
