// What the verbs share: global flags, the connection, and how results are printed.

#ifndef CLIENT_CLI_SESSION_H_
#define CLIENT_CLI_SESSION_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/environment.h"
#include "client/cli/exit_code.h"
#include "client/lib/connection.h"
#include "google/protobuf/message.h"

namespace megatrain {

struct GlobalOptions {
  std::string address;
  std::string output = "table";  // table, json, name
  bool no_headers = false;
  std::string color = "auto";  // auto, always, never
  double timeout_seconds = 0;  // 0: none
};

// One run of one verb.
class Session {
 public:
  Session(Environment& environment, const GlobalOptions& options, Connection& connection)
      : environment_(environment), options_(options), connection_(connection) {}

  Environment& environment() { return environment_; }
  const GlobalOptions& options() const { return options_; }
  Connection& connection() { return connection_; }
  std::ostream& out() { return environment_.out; }
  std::ostream& err() { return environment_.err; }

  bool wants_json() const { return options_.output == "json"; }
  bool wants_names() const { return options_.output == "name"; }
  bool wants_table() const { return options_.output == "table"; }

  // The proto's JSON form on stdout, on one line or indented.
  void PrintJson(const google::protobuf::Message& message, bool on_one_line = false);

  // A table with a heading on stdout; the last column may be of any width.
  void PrintTable(const std::vector<std::string>& heading,
                  const std::vector<std::vector<std::string>>& rows);

  // What the user can type to reach the same server.
  std::string Command(const std::string& verb_and_arguments) const;

 private:
  Environment& environment_;
  const GlobalOptions& options_;
  Connection& connection_;
};

// A verb after its arguments were read.
using Verb = std::function<absl::StatusOr<ExitCode>(Session&)>;

// Whether talk is coloured.
bool UsesColor(const Environment& environment, const GlobalOptions& options);

// error: / because: / try: / reason, on stderr.
void PrintError(Environment& environment, const GlobalOptions& options, const absl::Status& status);

}  // namespace megatrain

#endif  // CLIENT_CLI_SESSION_H_
