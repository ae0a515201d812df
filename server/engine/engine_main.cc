#include "server/engine/engine_main.h"

#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "runtime/base/allowed_processors.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/machine/measure_machine.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/machine_file.h"
#include "runtime/trainer/trainer.h"
#include "server/engine/engine_service.h"
#include "server/engine/parent_death.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace megatrain {
namespace {

// sizeof(sockaddr_un::sun_path) less its closing zero.
constexpr size_t kMaxSocketPath = 107;

struct Flags {
  std::string socket;
  pid_t parent = 0;
  std::string backend = "cpu";
  int threads = 0;
  std::string machine_folder;
  std::string log = "info";
};

// Stops `service` at each SIGTERM or SIGINT, both of which must be blocked in every thread: the
// second one no longer waits for a checkpoint.
class SignalThread {
 public:
  SignalThread(const sigset_t& signals, EngineService& service)
      : thread_([this, signals, &service] {
          int signal = 0;
          while (sigwait(&signals, &signal) == 0 && !ended_) {
            service.Stop();
          }
        }) {}

  ~SignalThread() {
    ended_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);  // wakes it
    thread_.join();
  }

 private:
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<grpc::Server>> Listen(const std::string& socket,
                                                     EngineService& service) {
  if (socket.size() > kMaxSocketPath) {
    return absl::InvalidArgumentError(absl::StrCat("--socket: the path has ", socket.size(),
                                                   " bytes, more than ", kMaxSocketPath));
  }
  const mode_t usual_mask = umask(077);  // only this user may connect
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  umask(usual_mask);
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", socket));
  }
  return server;
}

// Of a GPU, what a job's pipeline may take once libraries are loaded, and what it may not; 0 where
// the device is the host.
absl::Status ReadDeviceMemory(ComputeBackend& backend, MachineProfile& profile) {
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory memory, backend.ReadDeviceMemory());
  profile.device_memory_bytes =
      PipelineDeviceBytes(memory.total_bytes, memory.free_bytes, /*limit_bytes=*/0);
  profile.device_overhead_bytes = DeviceOverheadBytes(memory.total_bytes, memory.free_bytes);
  return absl::OkStatus();
}

// Measured once and kept; without a folder for it, without a name and with an H200's speeds.
absl::StatusOr<Machine> KnowThisMachine(const Flags& flags, int threads, ComputeBackend& backend,
                                        FileSystem& files, Clock& clock) {
  if (flags.machine_folder.empty()) {
    return Machine{};
  }
  MT_ASSIGN_OR_RETURN(Machine machine, KnowMachine(flags.machine_folder + "/profile.json", threads,
                                                   ForeignFile::kReplace, backend, files, clock));
  const OptimizerBandwidth optimizer = DescribeOptimizer(machine.profile.speeds, threads);
  spdlog::log(optimizer.is_low ? spdlog::level::warn : spdlog::level::info, "{}", optimizer.line);
  return machine;
}

absl::Status Serve(const Flags& flags, const BackendFactories& factories, const sigset_t& signals) {
  MT_RETURN_IF_ERROR(DieWithParent(flags.parent));
  const int threads = flags.threads > 0 ? flags.threads : AllowedProcessors();
  SystemClock clock;
  PosixFileSystem files;
  MT_ASSIGN_OR_RETURN(
      const std::unique_ptr<ComputeBackend> backend,
      factories.at(flags.backend)(
          {.compute_threads = threads, .machine_folder = flags.machine_folder, .files = files}));
  MT_ASSIGN_OR_RETURN(Machine machine, KnowThisMachine(flags, threads, *backend, files, clock));
  Trainer trainer({*backend, files, clock, machine.profile.speeds}, threads);
  MT_RETURN_IF_ERROR(trainer.WarmUp());
  MT_RETURN_IF_ERROR(ReadDeviceMemory(*backend, machine.profile));
  EngineService service({.backend = flags.backend,
                         .baseline_bytes = trainer.baseline_bytes(),
                         .device_memory_bytes = machine.profile.device_memory_bytes,
                         .machine_profile_json = machine.name.empty() ? "" : ToJson(machine)},
                        trainer, clock);
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<grpc::Server> server, Listen(flags.socket, service));
  spdlog::info("serves on {} with {} threads on {}; libraries take {} bytes", flags.socket, threads,
               backend->DeviceName(), trainer.baseline_bytes());
  {
    const SignalThread signal_thread(signals, service);
    service.RunJobs();
  }
  // At once: a client that waits for nothing would take seconds to see that this one ends.
  server->Shutdown(absl::ToChronoTime(clock.WallNow()));
  return absl::OkStatus();
}

void AddFlags(const BackendFactories& factories, CLI::App& app, Flags& flags) {
  std::vector<std::string> backends;
  for (const auto& [name, factory] : factories) {
    backends.push_back(name);
  }
  app.add_option("--socket", flags.socket, "Unix socket to serve on")->required();
  app.add_option("--parent", flags.parent,
                 "Process that must live as long as this one; 0: the one "
                 "that started it")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--backend", flags.backend, "Backend")->check(CLI::IsMember(backends));
  app.add_option("--threads", flags.threads, "Compute threads; 0: one a processor")
      ->check(CLI::Range(0, 64));
  app.add_option("--machine-folder", flags.machine_folder,
                 "Folder that keeps what is measured of this machine; none: nothing is measured");
  app.add_option("--log", flags.log, "Least severity to log")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

}  // namespace

int EngineMain(int argc, char** argv, const BackendFactories& factories) {
  Flags flags;
  CLI::App app("The training engine of megatraind.", "megatrain-engine");
  AddFlags(factories, app, flags);
  CLI11_PARSE(app, argc, argv);

  spdlog::set_default_logger(spdlog::stderr_logger_mt("engine"));
  spdlog::set_level(spdlog::level::from_str(flags.log));
  // Blocked before any thread starts, so that all threads inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  if (const absl::Status status = Serve(flags, factories, signals); !status.ok()) {
    spdlog::error("{}", status.ToString());
    return 1;
  }
  return 0;
}

}  // namespace megatrain
