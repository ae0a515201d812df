// What the daemon is told: a YAML file, flags, defaults.

#ifndef SERVER_CONFIG_DAEMON_CONFIG_H_
#define SERVER_CONFIG_DAEMON_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

struct DaemonConfig {
  std::string state_dir;                  // absolute
  std::string listen = "127.0.0.1:7443";  // port 0: any free one
  std::string unix_socket;                // empty: none
  std::string metrics_listen;             // empty: no metrics
  std::string engine;                     // path of megatrain-engine; empty: beside the daemon
  std::string backend = "cpu";
  int64_t engine_threads = 0;           // 0: one a processor
  std::vector<std::string> allow_path;  // for imports and exports; absolute
  std::string python = "/usr/bin/python3";
  std::string python_path;  // the folder of the helper's wheels
  int64_t max_row_bytes = int64_t{1} << 20;
  std::string log_level = "info";
};

// What the command line asks for.
struct CommandLine {
  DaemonConfig config;
  bool check_only = false;          // --check-config: say whether it is right, and end
  std::optional<std::string> text;  // --help, --version: print this, and end
};

// Reads flags and the file that --config names; a flag wins over the file. The file's keys are the
// flags' names with _ for -. INVALID_ARGUMENT names every unknown flag or key with the nearest
// known one, and every value that is wrong.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// "127.0.0.1:7443" and such: only this machine can connect.
bool IsLoopback(const std::string& address);

}  // namespace megatrain

#endif  // SERVER_CONFIG_DAEMON_CONFIG_H_
