#include "server/config/daemon_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/nearest_name.h"
#include "runtime/base/status_macros.h"
#include "server/config/version.h"

namespace megatrain {
namespace {

// sizeof(sockaddr_un::sun_path) less its closing zero.
constexpr size_t kMaxSocketPathBytes = 107;
constexpr int64_t kMaxRowBytesLimit = int64_t{1} << 30;

// One setting, as a flag and as a key of the file.
struct Setting {
  std::string key;  // with _
  std::string help;
  // Sets it from text; an error says what is wrong with the value.
  std::function<absl::Status(DaemonConfig&, const std::vector<std::string>&)> set;
  bool repeatable = false;
};

Setting Text(const std::string& key, std::string DaemonConfig::* member, const std::string& help) {
  return {key, help, [member](DaemonConfig& config, const std::vector<std::string>& values) {
            config.*member = values.back();
            return absl::OkStatus();
          }};
}

Setting Number(const std::string& key, int64_t DaemonConfig::* member, int64_t low, int64_t high,
               const std::string& help) {
  return {key, help, [=](DaemonConfig& config, const std::vector<std::string>& values) {
            int64_t number = 0;
            if (!absl::SimpleAtoi(values.back(), &number) || number < low || number > high) {
              return absl::InvalidArgumentError(absl::StrCat(
                  "\"", values.back(), "\" is no whole number from ", low, " to ", high));
            }
            config.*member = number;
            return absl::OkStatus();
          }};
}

Setting Texts(const std::string& key, std::vector<std::string> DaemonConfig::* member,
              const std::string& help) {
  return {key, help,
          [member](DaemonConfig& config, const std::vector<std::string>& values) {
            config.*member = values;
            return absl::OkStatus();
          },
          /*repeatable=*/true};
}

const std::vector<Setting>& Settings() {
  static const auto* const settings = new std::vector<Setting>{
      Text("state_dir", &DaemonConfig::state_dir, "Folder of everything that the daemon keeps"),
      Text("listen", &DaemonConfig::listen, "Address of the API; port 0: any free one"),
      Text("unix_socket", &DaemonConfig::unix_socket, "Unix socket of the API as well"),
      Text("metrics_listen", &DaemonConfig::metrics_listen, "Address of /metrics for Prometheus"),
      Text("engine", &DaemonConfig::engine, "Path of megatrain-engine"),
      Text("backend", &DaemonConfig::backend, "Engine backend: cpu or cuda"),
      Number("engine_threads", &DaemonConfig::engine_threads, 0, 64,
             "Threads of the engine; 0: one a processor"),
      Texts("allow_path", &DaemonConfig::allow_path,
            "Folder from which models may be imported and to which they may be exported"),
      Text("python", &DaemonConfig::python, "Python interpreter of the data helper"),
      Text("python_path", &DaemonConfig::python_path, "Folder of the data helper's wheels"),
      Number("max_row_bytes", &DaemonConfig::max_row_bytes, 1, kMaxRowBytesLimit,
             "Largest row of a data set"),
      Text("log_level", &DaemonConfig::log_level, "Least severity to log"),
  };
  return *settings;
}

std::string FlagOf(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string UnknownName(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return absl::StrCat("unknown ", name,
                      nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)"));
}

absl::StatusOr<std::vector<std::string>> ValuesOf(const YAML::Node& node, bool repeatable) {
  if (node.IsScalar()) {
    return std::vector<std::string>{node.Scalar()};
  }
  if (!repeatable || !node.IsSequence()) {
    return absl::InvalidArgumentError(repeatable ? "is no list of texts" : "is no single value");
  }
  std::vector<std::string> values;
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) {
      return absl::InvalidArgumentError("is no list of texts");
    }
    values.push_back(item.Scalar());
  }
  return values;
}

void ApplyKey(const std::string& key, const YAML::Node& node, DaemonConfig& config,
              std::vector<std::string>& errors) {
  std::vector<std::string> known;
  for (const Setting& setting : Settings()) {
    known.push_back(setting.key);
    if (setting.key != key) {
      continue;
    }
    const auto values = ValuesOf(node, setting.repeatable);
    const absl::Status status = values.ok() ? setting.set(config, *values) : values.status();
    if (!status.ok()) {
      errors.push_back(absl::StrCat("line ", node.Mark().line + 1, ": ", key, ": ",
                                    std::string(status.message())));
    }
    return;
  }
  errors.push_back(absl::StrCat("line ", node.Mark().line + 1, ": ", UnknownName(key, known)));
}

absl::Status ApplyFile(const std::string& path, DaemonConfig& config) {
  std::vector<std::string> errors;
  try {
    const YAML::Node root = YAML::LoadFile(path);
    if (!root.IsMap() && !root.IsNull()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is no list of `key: value` lines"));
    }
    for (const auto& entry : root) {
      ApplyKey(entry.first.Scalar(), entry.second, config, errors);
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
  return errors.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat(path, ": ", absl::StrJoin(errors, "; ")));
}

bool IsOneOf(const std::string& value, const std::vector<std::string>& known) {
  return std::find(known.begin(), known.end(), value) != known.end();
}

absl::Status Check(const DaemonConfig& config) {
  std::vector<std::string> errors;
  const auto wrong = [&errors](const std::string& key, const std::string& what) {
    errors.push_back(absl::StrCat(FlagOf(key), ": ", what));
  };
  if (config.state_dir.empty() || config.state_dir[0] != '/') {
    wrong("state_dir", "an absolute path is needed");
  } else if (config.state_dir.size() + sizeof("/engine.sock") - 1 > kMaxSocketPathBytes) {
    wrong("state_dir", "the path is too long for the engine's socket in it: at most 95 bytes");
  }
  for (const auto& [key, address] : std::map<std::string, std::string>{
           {"listen", config.listen}, {"metrics_listen", config.metrics_listen}}) {
    if (!address.empty() && !IsLoopback(address)) {
      wrong(key, absl::StrCat("\"", address, "\" is no loopback address with a port, such as ",
                              "127.0.0.1:7443: without TLS only this machine may connect"));
    }
  }
  if (config.unix_socket.size() > kMaxSocketPathBytes) {
    wrong("unix_socket", "the path is longer than 107 bytes");
  }
  for (const std::string& path : config.allow_path) {
    if (path.empty() || path[0] != '/') {
      wrong("allow_path", absl::StrCat("\"", path, "\" is no absolute path"));
    }
  }
  if (!IsOneOf(config.backend, {"cpu", "cuda"})) {
    wrong("backend", absl::StrCat("\"", config.backend, "\" is not known: take cpu or cuda"));
  }
  if (!IsOneOf(config.log_level, {"debug", "info", "warn", "error"})) {
    wrong("log_level",
          absl::StrCat("\"", config.log_level, "\" is not known: take debug, info, warn or error"));
  }
  return errors.empty() ? absl::OkStatus()
                        : absl::InvalidArgumentError(absl::StrJoin(errors, "; "));
}

// What CLI11 did not know, each with the nearest flag.
absl::Status UnknownFlags(const std::vector<std::string>& unknown) {
  std::vector<std::string> known = {"--config", "--check-config", "--help", "--version"};
  for (const Setting& setting : Settings()) {
    known.push_back(FlagOf(setting.key));
  }
  std::vector<std::string> errors;
  for (const std::string& argument : unknown) {
    errors.push_back(UnknownName(argument.substr(0, argument.find('=')), known));
  }
  return absl::InvalidArgumentError(absl::StrJoin(errors, "; "));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  CommandLine result;
  std::string file;
  std::map<std::string, std::vector<std::string>> flags;
  CLI::App app("MegaTrain's daemon: takes training jobs over gRPC and runs them.", "megatraind");
  app.add_option("--config", file, "YAML file with the same names, _ for -");
  app.add_flag("--check-config", result.check_only, "Check the configuration and end");
  app.set_version_flag("--version", kVersion);
  app.allow_extras();
  for (const Setting& setting : Settings()) {
    CLI::Option* option = app.add_option(FlagOf(setting.key), flags[setting.key], setting.help);
    option->multi_option_policy(setting.repeatable ? CLI::MultiOptionPolicy::TakeAll
                                                   : CLI::MultiOptionPolicy::TakeLast);
    option->expected(1);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    result.text = app.help();
    return result;
  } catch (const CLI::CallForVersion&) {
    result.text = absl::StrCat("megatraind ", kVersion, "\n");
    return result;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (!app.remaining().empty()) {
    return UnknownFlags(app.remaining());
  }
  if (!file.empty()) {
    MT_RETURN_IF_ERROR(ApplyFile(file, result.config));
  }
  for (const Setting& setting : Settings()) {
    if (const absl::Status status = flags[setting.key].empty()
                                        ? absl::OkStatus()
                                        : setting.set(result.config, flags[setting.key]);
        !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(FlagOf(setting.key), ": ", std::string(status.message())));
    }
  }
  MT_RETURN_IF_ERROR(Check(result.config));
  return result;
}

bool IsLoopback(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return false;
  }
  const std::string host = address.substr(0, colon);
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace megatrain
