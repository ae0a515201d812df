// megatraind: the daemon.

#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "server/config/daemon_config.h"
#include "server/main/daemon.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace megatrain {
namespace {

// From sysexits.h, so that systemd does not start it again (RestartPreventExitStatus).
constexpr int kExitUsage = 64;
constexpr int kExitConfig = 78;

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Serves until a signal, then stops; a second signal hurries.
void ServeUntilSignal(Daemon& daemon) {
  const sigset_t signals = StopSignals();
  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("stops (signal {}): the running job goes back into the queue", signal);
  std::atomic<bool> hurry = false;
  std::thread second([&] {
    int again = 0;
    sigwait(&signals, &again);
    hurry = true;
  });
  daemon.Stop(hurry);
  pthread_kill(second.native_handle(), SIGTERM);
  second.join();
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> command = ParseCommandLine(argc, argv);
  if (!command.ok()) {
    std::cerr << "megatraind: " << command.status().message() << "\n";
    return kExitUsage;
  }
  if (command->text.has_value()) {
    std::cout << *command->text;
    return 0;
  }
  if (command->check_only) {
    std::cout << "the configuration is right\n";
    return 0;
  }
  const auto logger = spdlog::stderr_logger_mt("megatraind");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_default_logger(logger);
  spdlog::set_level(spdlog::level::from_str(command->config.log_level));
  // Before any thread, so that all inherit it.
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  umask(027);  // models and data are for the user and the group
  SystemClock clock;
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(command->config, clock);
  if (!daemon.ok()) {
    spdlog::error("{}", std::string(daemon.status().message()));
    return absl::IsFailedPrecondition(daemon.status()) ? kExitConfig : 1;
  }
  spdlog::info("serves on {}", (*daemon)->address());
  if (!(*daemon)->metrics_address().empty()) {
    spdlog::info("metrics on http://{}/metrics", (*daemon)->metrics_address());
  }
  ServeUntilSignal(**daemon);
  daemon->reset();
  spdlog::info("stopped");
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
