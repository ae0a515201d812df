#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::StatusOr<ExitCode> ShowServer(Session& session) {
  MT_ASSIGN_OR_RETURN(
      const v1::Server server,
      session.connection().Call(CallKind::kRead, &v1::ServerService::Stub::GetServer,
                                v1::GetServerRequest()));
  if (session.wants_json()) {
    session.PrintJson(server);
    return ExitCode::kOk;
  }
  const std::string state = v1::ServerState_Name(server.state());
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"address", session.connection().options().address},
      {"version", server.version()},
      {"state", state.substr(std::string("SERVER_STATE_").size())},
      {"up", FormatAge(server.start_time(), session.environment().clock.WallNow())},
      {"engine",
       absl::StrCat(server.engine_backend(), server.engine_ready() ? ", ready" : ", not ready",
                    ", restarted ", server.engine_restart_count(), " times")},
      {"host memory", absl::StrCat(FormatBytes(server.host_available_bytes()), " for a job")},
      {"device memory", FormatBytes(server.device_memory_bytes())},
      {"queue", absl::StrCat(server.queued_job_count(), " waiting")},
      {"running", server.running_job().empty() ? "nothing" : server.running_job()},
      {"row limit", FormatBytes(server.max_row_bytes())},
      {"import/export", absl::StrJoin(server.allowed_paths(), ", ")},
  };
  for (const auto& [name, value] : lines) {
    session.out() << name << ":" << std::string(15 - name.size(), ' ') << Printable(value) << "\n";
  }
  return ExitCode::kOk;
}

}  // namespace

void AddServer(CLI::App& app, Verb& chosen) {
  CLI::App* verb = app.add_subcommand("server", "Shows the server's state");
  verb->callback([&chosen] { chosen = ShowServer; });
}

}  // namespace megatrain
