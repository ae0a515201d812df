#include "server/main/daemon.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/machine_file.h"
#include "server/api/checkpoint_service.h"
#include "server/api/dataset_service.h"
#include "server/api/follow_stream.h"
#include "server/api/job_service.h"
#include "server/api/model_service.h"
#include "server/api/server_service.h"
#include "server/api/unary_calls.h"
#include "server/api/upload_service.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/checkpoints/checkpoint_export.h"
#include "server/config/version.h"
#include "server/database/database.h"
#include "server/database/request_log.h"
#include "server/datasets/data_preparer.h"
#include "server/datasets/dataset_store.h"
#include "server/engine_process/engine_job_runner.h"
#include "server/engine_process/engine_supervisor.h"
#include "server/errors/errors.h"
#include "server/executor/executor.h"
#include "server/jobs/catalog_job_materials.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/job_log.h"
#include "server/jobs/sqlite_job_store.h"
#include "server/main/controller_loop.h"
#include "server/main/grpc_server.h"
#include "server/main/helper_archive.h"
#include "server/main/observers.h"
#include "server/main/state_lock.h"
#include "server/metrics/grpc_metrics.h"
#include "server/metrics/metrics_endpoint.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/server_metrics.h"
#include "server/models/model_store.h"
#include "server/planning/job_admission.h"
#include "server/resources/resource_table.h"
#include "server/resources/timestamp.h"
#include "server/uploads/upload_store.h"
#include "spdlog/spdlog.h"

namespace megatrain {
namespace {

// Handlers block on the disk, and a few on an upload.
constexpr int kCallThreads = 8;
// Verifications and exports: each keeps a disk busy. Those that wait have callers who wait.
constexpr int kLongCallThreads = 2;
constexpr int kWaitingLongCalls = 32;
constexpr int kStreamThreads = 2;
constexpr absl::Duration kShutdownGrace = absl::Seconds(10);
constexpr absl::Duration kDrainTimeout = absl::Minutes(30);  // a step and a save of a large model
constexpr absl::Duration kDeathTimeout = absl::Seconds(10);
constexpr absl::Duration kSweepInterval = absl::Hours(1);

// The whole schema in the order in which it grew: only append.
std::vector<Migration> Migrations() {
  return {RequestLogMigration(), JobStoreMigration(), ResourceTableMigration(), JobWishMigration(),
          JobResumeMigration()};
}

std::vector<std::string> ServiceNames() {
  return {"megatrain.v1.CheckpointService", "megatrain.v1.DatasetService",
          "megatrain.v1.JobService",        "megatrain.v1.ModelService",
          "megatrain.v1.ServerService",     "megatrain.v1.UploadService"};
}

int64_t ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  return file >> total_pages >> resident_pages ? resident_pages * sysconf(_SC_PAGESIZE) : 0;
}

std::string PathBesideThisProgram(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : (self.parent_path() / name).string();
}

// Whole or not at all, so that a reader never sees half of it.
absl::Status WriteWhole(FileSystem& files, const std::string& path, std::string_view text) {
  const std::string staging = path + ".new";
  MT_ASSIGN_OR_RETURN(const auto file, files.OpenForWriting(staging, /*append=*/false));
  MT_RETURN_IF_ERROR(file->Append(text));
  MT_RETURN_IF_ERROR(file->Close());
  return files.Rename(staging, path);
}

}  // namespace

// Members in the order of their making; each uses those above only, and dies before them.
struct Daemon::Parts {
  Parts(const DaemonConfig& daemon_config, const Clock& daemon_clock)
      : config(daemon_config), clock(daemon_clock), start_time(daemon_clock.WallNow()) {}

  absl::Status OpenState();
  absl::Status OpenCatalog();
  void StartEngine();
  absl::Status MakeJobs();
  absl::Status Serve();
  void Tick();
  absl::StatusOr<MachineProfile> Machine() const;
  absl::StatusOr<v1::Server> Describe();
  std::string In(const std::string& name) const { return config.state_dir + "/" + name; }

  const DaemonConfig config;
  const Clock& clock;
  const absl::Time start_time;
  PosixFileSystem files;
  std::unique_ptr<StateLock> lock;
  ControllerLoop loop;  // takes wakes from everything below; ticks stop first
  FollowHub hub;
  ServerMetrics metrics{kVersion, grpc::Version()};
  GrpcMetrics grpc_metrics{*metrics.registry(), ServiceNames(), clock};
  DaemonObserver observer{hub, metrics};
  std::unique_ptr<Database> database;
  std::unique_ptr<SqliteJobStore> jobs;
  std::unique_ptr<JobLog> log;
  std::unique_ptr<UploadStore> uploads;
  std::unique_ptr<DataPreparer> preparer;
  std::unique_ptr<DatasetStore> datasets;
  std::unique_ptr<ModelStore> models;
  std::unique_ptr<CheckpointCatalog> checkpoints;
  std::unique_ptr<EngineSupervisor> supervisor;
  std::unique_ptr<EngineJobRunner> runner;
  std::unique_ptr<CatalogJobMaterials> materials;
  std::unique_ptr<JobController> controller;
  std::unique_ptr<JobAdmission> admission;
  Executor call_executor{kCallThreads};
  Executor long_call_executor{kLongCallThreads};
  Executor stream_executor{kStreamThreads};
  UnaryCalls calls{call_executor, clock};
  UnaryCalls long_calls{long_call_executor, clock, kWaitingLongCalls};
  std::vector<std::unique_ptr<grpc::Service>> services;
  RunningGrpcServer running;
  std::unique_ptr<MetricsEndpoint> metrics_endpoint;
  std::atomic<bool> draining = false;
  std::string last_tick_error;
  absl::Duration last_sweep;
};

absl::Status Daemon::Parts::OpenState() {
  MT_RETURN_IF_ERROR(files.MakeFolders(config.state_dir));
  MT_ASSIGN_OR_RETURN(lock, StateLock::Take(config.state_dir));
  MT_RETURN_IF_ERROR(files.RemoveTree(In("address")));
  MT_RETURN_IF_ERROR(files.RemoveTree(In("metrics_address")));
  MT_RETURN_IF_ERROR(files.MakeFolders(In("tmp")));
  MT_RETURN_IF_ERROR(WriteWhole(files, In("tmp/prepare.zip"), HelperArchive()));
  MT_ASSIGN_OR_RETURN(database, Database::Open(In("db.sqlite"), Migrations()));
  jobs = std::make_unique<SqliteJobStore>(*database, clock);
  log = std::make_unique<JobLog>(files, In("jobs"));
  return absl::OkStatus();
}

absl::Status Daemon::Parts::OpenCatalog() {
  MT_ASSIGN_OR_RETURN(uploads,
                      UploadStore::Open(*database, files, clock, {.folder = In("uploads")}));
  DataPreparer::Options options;
  options.python = config.python;
  options.archive = In("tmp/prepare.zip");
  options.python_path = config.python_path;
  options.max_row_bytes = config.max_row_bytes;
  preparer = std::make_unique<DataPreparer>(clock, options);
  MT_ASSIGN_OR_RETURN(datasets, DatasetStore::Open({*database, files, clock, *uploads, *preparer},
                                                   {.datasets_folder = In("datasets"),
                                                    .prepared_folder = In("prepared"),
                                                    .staging_folder = In("tmp/prepare")}));
  MT_ASSIGN_OR_RETURN(
      models, ModelStore::Open({*database, files, clock}, {.models_folder = In("models"),
                                                           .staging_folder = In("tmp/import"),
                                                           .allowed_paths = config.allow_path}));
  MT_ASSIGN_OR_RETURN(
      checkpoints,
      CheckpointCatalog::Open({*database, files, clock, *jobs, In("jobs"),
                               [this](int64_t freed_bytes) { metrics.CountRetention(freed_bytes); },
                               [](const std::string& finding) { spdlog::warn("{}", finding); }}));
  return absl::OkStatus();
}

void Daemon::Parts::StartEngine() {
  const auto wake = [this] { loop.Wake(); };
  EngineSupervisor::Options options;
  options.engine_path = !config.engine.empty()    ? config.engine
                        : config.backend == "cpu" ? PathBesideThisProgram("megatrain-engine")
                                                  : PathBesideThisProgram("megatrain-engine-cuda");
  options.socket_path = In("engine.sock");
  options.log_path = In("engine.log");
  options.arguments = {"--backend",        config.backend,
                       "--threads",        absl::StrCat(config.engine_threads),
                       "--machine-folder", In("machine")};
  supervisor = std::make_unique<EngineSupervisor>(options, clock, wake);
  runner = std::make_unique<EngineJobRunner>(*supervisor, clock, wake);
}

absl::Status Daemon::Parts::MakeJobs() {
  materials = std::make_unique<CatalogJobMaterials>(CatalogJobMaterials::Parts{
      *checkpoints, *datasets, *preparer, *models, files, In("tmp/output")});
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, jobs->Active());
  MT_RETURN_IF_ERROR(materials->RemoveStrays(active));
  controller = std::make_unique<JobController>(
      JobController::Parts{*jobs, *runner, *materials, *checkpoints, *log, observer},
      [this] { loop.Wake(); });
  admission = std::make_unique<JobAdmission>(
      JobAdmission::Parts{*models, *datasets, files, [this] { return Machine(); },
                          /*compute_dtype=*/config.backend == "cpu" ? "fp32" : "bf16", In("jobs")});
  services.push_back(std::make_unique<JobService>(
      JobService::Parts{calls, stream_executor, hub, *jobs, *checkpoints, *log, *admission, clock,
                        [this] { loop.Wake(); }, [this] { metrics.CountSubmittedJob(); }}));
  services.push_back(std::make_unique<CheckpointService>(
      CheckpointService::Parts{calls, long_calls, stream_executor, hub, *checkpoints, *jobs, clock,
                               [this] { loop.Wake(); }}));
  services.push_back(std::make_unique<DatasetService>(calls, *datasets));
  services.push_back(std::make_unique<ModelService>(
      calls, long_calls, *models,
      [this](const RequestKey& key, const std::string& name, const std::string& path,
             const ByteProgress& progress) {
        return CheckpointExport({*checkpoints, *jobs, *models, files})
            .Export(key, name, path, progress);
      }));
  services.push_back(std::make_unique<UploadService>(calls, *uploads));
  services.push_back(std::make_unique<ServerService>(calls, [this] { return Describe(); }));
  return absl::OkStatus();
}

absl::Status Daemon::Parts::Serve() {
  GrpcServerOptions options;
  options.listen = config.listen;
  options.unix_socket = config.unix_socket;
  options.metrics = &grpc_metrics;
  for (const auto& service : services) {
    options.services.push_back(service.get());
  }
  MT_ASSIGN_OR_RETURN(running, StartGrpcServer(options));
  if (!config.metrics_listen.empty()) {
    MT_ASSIGN_OR_RETURN(
        metrics_endpoint,
        MetricsEndpoint::Start(config.metrics_listen,
                               {metrics.registry(), std::make_shared<ProcessMetrics>()}));
    MT_RETURN_IF_ERROR(WriteWhole(files, In("metrics_address"), metrics_endpoint->address()));
  }
  last_sweep = clock.MonotonicNow();
  loop.Start([this] { Tick(); });
  metrics.SetServerState(ServerMetrics::ServerState::kReady);
  running.server->GetHealthCheckService()->SetServingStatus(true);
  return WriteWhole(files, In("address"), running.address);
}

void Daemon::Parts::Tick() {
  const absl::Status status = controller->Tick(clock.WallNow());
  const std::string error = status.ok() ? "" : status.ToString();
  if (error != last_tick_error && !error.empty()) {
    spdlog::error("jobs wait until this is solved: {}", error);
  }
  last_tick_error = error;
  hub.Tick(clock.MonotonicNow());
  metrics.SetWatchStreams(hub.OpenCount());
  const EngineSupervisor::State engine = supervisor->GetState();
  metrics.SetEngine(engine.ready, engine.restart_count);
  if (const absl::StatusOr<int64_t> left = files.AvailableBytes(In("jobs")); left.ok()) {
    metrics.SetAvailableBytes(*left);
  }
  if (clock.MonotonicNow() - last_sweep > kSweepInterval) {
    last_sweep = clock.MonotonicNow();
    call_executor.Run([this] {
      if (const absl::Status swept = uploads->RemoveExpired(); !swept.ok()) {
        spdlog::warn("expired uploads stay: {}", swept.ToString());
      }
    });
  }
}

absl::StatusOr<MachineProfile> Daemon::Parts::Machine() const {
  const EngineSupervisor::State state = supervisor->GetState();
  if (state.engine.baseline_bytes() == 0) {
    const std::string& death = state.last_death.message();
    return RetryLater("ENGINE_NOT_READY",
                      absl::StrCat("the engine does not answer yet",
                                   death.empty() ? "" : absl::StrCat("; before, ", death)),
                      absl::Seconds(2));
  }
  MT_ASSIGN_OR_RETURN(const HostMemory memory, ReadAvailableHostMemory(""));
  MachineProfile machine;
  if (const std::string& json = state.engine.machine_profile_json(); !json.empty()) {
    MT_ASSIGN_OR_RETURN(const megatrain::Machine measured, ParseMachine(json));
    machine.speeds = measured.profile.speeds;
    machine.device_overhead_bytes = measured.profile.device_overhead_bytes;
    machine.disk_write_bytes_per_second = measured.profile.disk_write_bytes_per_second;
  }
  machine.backend = config.backend == "cpu" ? Backend::kCpu : Backend::kCuda;
  machine.engine_baseline_bytes = state.engine.baseline_bytes();
  machine.device_memory_bytes = state.engine.device_memory_bytes();
  // A job starts when the one that runs now is gone: what the engine holds counts as free.
  machine.host_available_bytes =
      memory.available_bytes + (state.pid == 0 ? 0 : ResidentBytes(state.pid));
  return machine;
}

absl::StatusOr<v1::Server> Daemon::Parts::Describe() {
  const EngineSupervisor::State engine = supervisor->GetState();
  MT_ASSIGN_OR_RETURN(const HostMemory memory, ReadAvailableHostMemory(""));
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, jobs->Active());
  v1::Server server;
  server.set_version(kVersion);
  server.set_state(draining ? v1::SERVER_STATE_DRAINING : v1::SERVER_STATE_READY);
  *server.mutable_start_time() = TimestampOf(start_time);
  server.set_engine_backend(config.backend);
  server.set_engine_ready(engine.ready);
  server.set_engine_restart_count(engine.restart_count);
  server.set_host_available_bytes(memory.available_bytes +
                                  (engine.pid == 0 ? 0 : ResidentBytes(engine.pid)));
  server.set_device_memory_bytes(engine.engine.device_memory_bytes());
  for (const JobRecord& record : active) {
    if (record.job.state() == v1::JOB_STATE_QUEUED) {
      server.set_queued_job_count(server.queued_job_count() + 1);
    } else if (record.job.state() != v1::JOB_STATE_PAUSED) {
      server.set_running_job(record.job.name());
    }
  }
  server.set_max_row_bytes(config.max_row_bytes);
  server.mutable_allowed_paths()->Assign(config.allow_path.begin(), config.allow_path.end());
  return server;
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonConfig& config,
                                                      const Clock& clock) {
  auto parts = std::make_unique<Parts>(config, clock);
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(parts)));
  MT_RETURN_IF_ERROR(daemon->parts_->OpenState());
  MT_RETURN_IF_ERROR(daemon->parts_->OpenCatalog());
  daemon->parts_->StartEngine();
  MT_RETURN_IF_ERROR(daemon->parts_->MakeJobs());
  MT_RETURN_IF_ERROR(daemon->parts_->Serve());
  return daemon;
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Daemon::~Daemon() {
  const std::atomic<bool> hurry = true;
  Stop(hurry);
}

void Daemon::Stop(const std::atomic<bool>& hurry) {
  Parts& parts = *parts_;
  if (parts.draining.exchange(true)) {
    return;
  }
  parts.metrics.SetServerState(ServerMetrics::ServerState::kDraining);
  if (parts.running.server != nullptr) {
    parts.running.server->GetHealthCheckService()->SetServingStatus(false);
  }
  parts.calls.Drain();
  parts.long_calls.Stop();
  if (parts.controller != nullptr && parts.running.server != nullptr) {
    parts.controller->Drain();
    const absl::Duration end = parts.clock.MonotonicNow() + kDrainTimeout;
    while (!parts.controller->Idle() && !hurry && parts.clock.MonotonicNow() < end) {
      parts.hub.WaitPast(parts.hub.Version(), absl::Milliseconds(100));
    }
    if (!parts.controller->Idle()) {
      parts.supervisor->Kill(parts.supervisor->GetState().generation,
                             "the server had to stop at once");
      const absl::Duration last = parts.clock.MonotonicNow() + kDeathTimeout;
      while (!parts.controller->Idle() && parts.clock.MonotonicNow() < last) {
        parts.hub.WaitPast(parts.hub.Version(), absl::Milliseconds(100));
      }
    }
  }
  parts.hub.Drain();
  if (parts.running.server != nullptr) {
    parts.running.server->Shutdown(absl::ToChronoTime(parts.clock.WallNow() + kShutdownGrace));
    parts.running.server->Wait();
  }
  parts.loop.Stop();
  if (parts.preparer != nullptr) {
    parts.preparer->StopAll();
  }
  if (parts.lock != nullptr) {  // else they are another daemon's
    parts.files.RemoveTree(parts.In("address")).IgnoreError();
    parts.files.RemoveTree(parts.In("metrics_address")).IgnoreError();
  }
}

const std::string& Daemon::address() const { return parts_->running.address; }

const std::string& Daemon::metrics_address() const {
  static const std::string* const none = new std::string();
  return parts_->metrics_endpoint == nullptr ? *none : parts_->metrics_endpoint->address();
}

}  // namespace megatrain
