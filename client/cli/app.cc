#include "client/cli/app.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/session.h"
#include "client/cli/verbs.h"
#include "client/lib/connection.h"
#include "client/lib/error_text.h"
#include "runtime/base/nearest_name.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not authenticated, 5 denied,\n"
    "6 does not fit or wrong state, 7 quota or disk full, 8 unavailable, 9 timed out,\n"
    "10 job failed, 11 job cancelled, 130 interrupted.";

void AddGlobalOptions(CLI::App& app, GlobalOptions& options) {
  app.add_option("--address", options.address,
                 "The server: host:port or unix:/path (else MEGATRAIN_ADDRESS, else loopback)");
  app.add_option("-o,--output", options.output, "table, json or name")
      ->check(CLI::IsMember({"table", "json", "name"}));
  app.add_flag("--no-headers", options.no_headers, "Tables without their first line");
  app.add_option("--color", options.color, "auto, always or never (NO_COLOR is respected)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_option("--timeout", options.timeout_seconds, "Seconds for the whole command")
      ->check(CLI::PositiveNumber);
}

// The subcommand that the arguments have reached.
const CLI::App& Reached(const CLI::App& app) {
  const CLI::App* reached = &app;
  while (!reached->get_subcommands().empty()) {
    reached = reached->get_subcommands().front();
  }
  return *reached;
}

// What to type for the help of the subcommand that the arguments have reached.
std::string HelpCommand(const CLI::App& app) {
  std::string words = "--help";
  for (const CLI::App* level = &Reached(app); level != &app; level = level->get_parent()) {
    words = absl::StrCat(level->get_name(), " ", words);
  }
  return absl::StrCat("megatrain ", words);
}

// Flags of `app` and of all above it, or the names of its subcommands.
std::vector<std::string> KnownNames(const CLI::App& app, bool flags) {
  std::vector<std::string> names;
  if (!flags) {
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
    }
    return names;
  }
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back("--" + name);
      }
    }
  }
  return names;
}

// An argument that nobody knows, with the nearest one that somebody does.
absl::Status UnknownArgument(const CLI::App& app, const std::string& argument) {
  const CLI::App& reached = Reached(app);
  const bool is_flag = argument.size() > 1 && argument[0] == '-';
  const std::string name = is_flag ? argument.substr(0, argument.find('=')) : argument;
  const std::string kind = is_flag                              ? "flag"
                           : KnownNames(reached, false).empty() ? "argument"
                                                                : "command";
  const std::string nearest = NearestName(name, KnownNames(reached, is_flag));
  absl::Status error = absl::InvalidArgumentError(absl::StrCat("unknown ", kind, " ", name));
  return WithHint(std::move(error), nearest.empty()
                                        ? HelpCommand(app)
                                        : absl::StrCat(nearest, ", the nearest known ", kind));
}

// What CLI11 found wrong. An unknown argument is named first: it is often why another one lacks.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto flag = std::find_if(unknown.begin(), unknown.end(), [](const std::string& argument) {
    return argument.size() > 1 && argument[0] == '-';
  });
  absl::Status status = flag != unknown.end() ? UnknownArgument(app, *flag)
                        : !unknown.empty()
                            ? UnknownArgument(app, unknown.front())
                            : WithHint(absl::InvalidArgumentError(error.what()), HelpCommand(app));
  return WithClientReason(std::move(status), "USAGE");
}

absl::StatusOr<ExitCode> RunVerb(const Verb& verb, const GlobalOptions& options,
                                 Environment& environment) {
  ConnectionOptions connection_options;
  MT_ASSIGN_OR_RETURN(connection_options.address,
                      ResolveAddress(options.address, environment.variable("MEGATRAIN_ADDRESS")));
  if (options.timeout_seconds > 0) {
    connection_options.timeout = absl::Seconds(options.timeout_seconds);
  }
  Connection connection(connection_options, environment.clock, environment.interruption);
  Session session(environment, options, connection);
  return verb(session);
}

int Fail(Environment& environment, const GlobalOptions& options, const absl::Status& status) {
  PrintError(environment, options, status);
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace

int RunApp(const std::vector<std::string>& arguments, Environment& environment) {
  CLI::App app("Trains models on a MegaTrain server.", "megatrain");
  app.footer(kFooter);
  app.fallthrough();
  app.require_subcommand(1);
  GlobalOptions options;
  AddGlobalOptions(app, options);
  Verb chosen;
  for (const auto add : {AddSubmit, AddPlan, AddPs, AddShow, AddWatch, AddLogs, AddPause, AddResume,
                         AddFork, AddCancel, AddCheckpoint, AddModel, AddDataset, AddServer}) {
    add(app, chosen);
  }
  try {
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    environment.out << Reached(app).help();
    return static_cast<int>(ExitCode::kOk);
  } catch (const CLI::ParseError& error) {
    return Fail(environment, options, UsageError(app, error));
  }
  const absl::StatusOr<ExitCode> code = RunVerb(chosen, options, environment);
  environment.out.flush();
  return code.ok() ? static_cast<int>(*code) : Fail(environment, options, code.status());
}

}  // namespace megatrain
