// The catalogue's rows: uploads, data sets and model versions, each a message under its name.

#ifndef SERVER_RESOURCES_RESOURCE_TABLE_H_
#define SERVER_RESOURCES_RESOURCE_TABLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message_lite.h"
#include "runtime/base/status_macros.h"
#include "server/database/connection.h"
#include "server/database/database.h"

namespace megatrain {

// The table of all resources.
Migration ResourceTableMigration();

// A message with its place in the order of creation.
template <typename Message>
struct Numbered {
  int64_t number = 0;
  Message message;
};

// What a list asks for.
struct ResourceQuery {
  std::string collection;     // such as "datasets" or "models/addition"; "models/" ends in a slash
                              // and stands for all collections that start so
  std::vector<int> states;    // empty: all
  int64_t before_number = 0;  // only older ones; 0: all
  int64_t limit = -1;         // -1: all
};

// All functions run in the caller's transaction. `Message` has a field `name`.

// RESOURCE_EXISTS when the name is taken.
absl::Status InsertResource(Connection& connection, const std::string& collection,
                            const std::string& name, int state,
                            const google::protobuf::MessageLite& message);

// NOT_FOUND when the name is not there.
absl::Status UpdateResource(Connection& connection, const std::string& name, int state,
                            const google::protobuf::MessageLite& message);

// OK when it is not there.
absl::Status DeleteResource(Connection& connection, const std::string& name);

// Numbers and serialized messages, newest first.
absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> SelectResources(
    Connection& connection, const ResourceQuery& query);

// The same of several collections at once, of which none ends in a slash.
absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> SelectResourcesOf(
    Connection& connection, const std::vector<std::string>& collections);

// The serialized message; NOT_FOUND when the name is not there.
absl::StatusOr<std::string> SelectResource(Connection& connection, const std::string& name);

// The message of `bytes`, which came from the database.
template <typename Message>
absl::StatusOr<Message> ParseStored(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) {
    return absl::DataLossError(
        absl::StrCat("database: a ", Message::descriptor()->name(), " cannot be read"));
  }
  return message;
}

template <typename Message>
absl::StatusOr<Message> FindResource(Connection& connection, const std::string& name) {
  MT_ASSIGN_OR_RETURN(const std::string bytes, SelectResource(connection, name));
  return ParseStored<Message>(bytes);
}

template <typename Message>
absl::StatusOr<std::vector<Numbered<Message>>> ParseStoredRows(
    const std::vector<std::pair<int64_t, std::string>>& rows) {
  std::vector<Numbered<Message>> result;
  for (const auto& [number, bytes] : rows) {
    MT_ASSIGN_OR_RETURN(Message message, ParseStored<Message>(bytes));
    result.push_back({number, std::move(message)});
  }
  return result;
}

// Newest first.
template <typename Message>
absl::StatusOr<std::vector<Numbered<Message>>> ListResources(Connection& connection,
                                                             const ResourceQuery& query) {
  MT_ASSIGN_OR_RETURN(const auto rows, SelectResources(connection, query));
  return ParseStoredRows<Message>(rows);
}

// The same of SelectResourcesOf.
template <typename Message>
absl::StatusOr<std::vector<Numbered<Message>>> ListResourcesOf(
    Connection& connection, const std::vector<std::string>& collections) {
  MT_ASSIGN_OR_RETURN(const auto rows, SelectResourcesOf(connection, collections));
  return ParseStoredRows<Message>(rows);
}

}  // namespace megatrain

#endif  // SERVER_RESOURCES_RESOURCE_TABLE_H_
