#include "server/resources/resource_table.h"

#include "absl/strings/str_join.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> SelectRows(
    Connection& connection, const std::string& sql, const std::vector<Value>& values) {
  std::vector<std::pair<int64_t, std::string>> rows;
  MT_RETURN_IF_ERROR(connection.Query(sql, values, [&rows](const Row& row) {
    rows.emplace_back(row.Int(0), row.Text(1));
    return absl::OkStatus();
  }));
  return rows;
}

}  // namespace

Migration ResourceTableMigration() {
  return {"resources", R"sql(
    CREATE TABLE resources (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      name TEXT NOT NULL UNIQUE,
      collection TEXT NOT NULL,
      state INTEGER NOT NULL,
      message BLOB NOT NULL
    ) STRICT;
    CREATE INDEX resources_by_collection ON resources (collection, number);
  )sql"};
}

absl::Status InsertResource(Connection& connection, const std::string& collection,
                            const std::string& name, int state,
                            const google::protobuf::MessageLite& message) {
  const absl::Status status = connection.Execute(
      "INSERT INTO resources (name, collection, state, message) VALUES (?, ?, ?, ?)",
      {name, collection, int64_t{state}, Blob{message.SerializeAsString()}});
  return absl::IsAlreadyExists(status) ? ResourceExists(name) : status;
}

absl::Status UpdateResource(Connection& connection, const std::string& name, int state,
                            const google::protobuf::MessageLite& message) {
  MT_RETURN_IF_ERROR(
      connection.Execute("UPDATE resources SET state = ?, message = ? WHERE name = ?",
                         {int64_t{state}, Blob{message.SerializeAsString()}, name}));
  return connection.ChangeCount() == 1 ? absl::OkStatus() : ResourceNotFound(name);
}

absl::Status DeleteResource(Connection& connection, const std::string& name) {
  return connection.Execute("DELETE FROM resources WHERE name = ?", {name});
}

absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> SelectResources(
    Connection& connection, const ResourceQuery& query) {
  const bool is_prefix = query.collection.ends_with('/');
  std::string sql = absl::StrCat("SELECT number, message FROM resources WHERE number < ? AND ",
                                 is_prefix ? "substr(collection, 1, ?) = ?" : "collection = ?");
  std::vector<Value> values = {query.before_number == 0 ? INT64_MAX : query.before_number};
  if (is_prefix) {
    values.emplace_back(static_cast<int64_t>(query.collection.size()));
  }
  values.emplace_back(query.collection);
  for (size_t i = 0; i < query.states.size(); ++i) {
    absl::StrAppend(&sql, i == 0 ? " AND state IN (?" : ", ?");
    values.emplace_back(int64_t{query.states[i]});
  }
  absl::StrAppend(&sql, query.states.empty() ? "" : ")", " ORDER BY number DESC LIMIT ?");
  values.emplace_back(query.limit);
  return SelectRows(connection, sql, values);
}

absl::StatusOr<std::vector<std::pair<int64_t, std::string>>> SelectResourcesOf(
    Connection& connection, const std::vector<std::string>& collections) {
  const std::vector<std::string> places(collections.size(), "?");
  return SelectRows(connection,
                    absl::StrCat("SELECT number, message FROM resources WHERE collection IN (",
                                 absl::StrJoin(places, ", "), ") ORDER BY number DESC"),
                    {collections.begin(), collections.end()});
}

absl::StatusOr<std::string> SelectResource(Connection& connection, const std::string& name) {
  std::string bytes;
  bool found = false;
  MT_RETURN_IF_ERROR(
      connection.Query("SELECT message FROM resources WHERE name = ?", {name}, [&](const Row& row) {
        bytes = row.Text(0);
        found = true;
        return absl::OkStatus();
      }));
  if (!found) {
    return ResourceNotFound(name);
  }
  return bytes;
}

}  // namespace megatrain
