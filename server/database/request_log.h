// Answers to mutating requests, so that a repeat after a lost connection is safe.

#ifndef SERVER_DATABASE_REQUEST_LOG_H_
#define SERVER_DATABASE_REQUEST_LOG_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/database/connection.h"
#include "server/database/database.h"
#include "server/database/request_key.h"

namespace megatrain {

// The table of answers.
Migration RequestLogMigration();

// The answer that a request of this key got, none when it is new; INVALID_ARGUMENT as WriteOnce.
absl::StatusOr<std::optional<std::string>> FindAnswer(Connection& connection,
                                                      const RequestKey& key);

// Runs `effect` in one transaction with the record of its answer, which is kept 7 days. A repeat
// with the same id and payload gets that answer and has no effect; with another payload it is
// INVALID_ARGUMENT with the reason REQUEST_ID_REUSED. Errors of `effect` are not kept.
absl::StatusOr<std::string> WriteOnce(
    Database& database, const RequestKey& key, absl::Time now,
    const std::function<absl::StatusOr<std::string>(Connection&)>& effect);

// The answer that a repeat of the request would get; none for a new one. For effects that take too
// long for one transaction: they begin with this and end with WriteOnce.
absl::StatusOr<std::optional<std::string>> FindAnswer(Database& database, const RequestKey& key);

}  // namespace megatrain

#endif  // SERVER_DATABASE_REQUEST_LOG_H_
