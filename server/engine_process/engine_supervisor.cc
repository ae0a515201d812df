#include "server/engine_process/engine_supervisor.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine_process/engine_exit.h"
#include "spdlog/spdlog.h"

namespace megatrain {
namespace {

constexpr absl::Duration kReadyPoll = absl::Milliseconds(250);
constexpr absl::Duration kReadyTimeout = absl::Seconds(120);  // loading the libraries included
constexpr absl::Duration kStopGrace = absl::Seconds(10);
constexpr size_t kQuotedBytes = 500;
// Has threads that wait for work of the OpenMP runtime sleep instead of spin: beside the
// optimizer's threads, or on a machine that others use too, spinning made a step ten times slower.
// The runtime reads it when it is loaded. A setting of the user's is kept.
constexpr char kIdleThreadsSleep[] = "OMP_WAIT_POLICY=passive";

// The log's last line, cut: of an engine that gave up, why it did.
std::string LastLine(const std::string& log_path) {
  std::ifstream file(log_path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) {
      last = line.substr(0, kQuotedBytes);
    }
  }
  return last;
}

std::string DeathMessage(const ExitReport& report, const std::string& kill_reason,
                         const std::string& log_path) {
  std::string message = absl::StrCat("the engine ", InWords(report));
  if (!kill_reason.empty()) {
    absl::StrAppend(&message, " by this server: ", kill_reason);
  } else if (report.signal == SIGKILL) {
    absl::StrAppend(&message,
                    ", which this server did not send: most likely the kernel was out of memory "
                    "(see dmesg); compare the job's plan with what the machine has");
  } else if (report.exit_code == kStalledExitCode) {
    message = absl::StrCat("the engine ended itself: ", LastLine(log_path));
  } else if (report.exit_code != 0) {
    absl::StrAppend(&message, "; last in ", log_path, ": ", LastLine(log_path));
  }
  return message;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  // Each engine gets connections of its own: a shared one would remember the dead one's socket.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket_path),
                                   grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

EngineSupervisor::EngineSupervisor(Options options, const Clock& clock,
                                   std::function<void()> on_change)
    : options_(std::move(options)), clock_(clock), on_change_(std::move(on_change)) {
  thread_ = std::thread([this] { Loop(); });
  question_thread_ = std::thread([this] { AskForLife(); });
}

EngineSupervisor::~EngineSupervisor() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    if (child_ != nullptr) {
      child_->Kill(SIGTERM);
    }
    const absl::Duration end = clock_.MonotonicNow() + kStopGrace;
    while (!stopped_ && clock_.MonotonicNow() < end) {
      changed_.WaitFor(&mutex_, end - clock_.MonotonicNow());
    }
    if (child_ != nullptr) {
      child_->Kill(SIGKILL);
    }
  }
  thread_.join();
  question_thread_.join();
}

EngineSupervisor::State EngineSupervisor::GetState() const {
  MutexLock lock(&mutex_);
  return state_;
}

std::optional<v1::JobReason> EngineSupervisor::WaitForDeath(int64_t generation,
                                                            absl::Duration timeout) {
  const absl::Duration end = clock_.MonotonicNow() + timeout;
  MutexLock lock(&mutex_);
  while (dead_generation_ < generation) {
    const absl::Duration left = end - clock_.MonotonicNow();
    if (left <= absl::ZeroDuration()) {
      return std::nullopt;
    }
    changed_.WaitFor(&mutex_, left);
  }
  return state_.last_death;
}

void EngineSupervisor::Kill(int64_t generation, const std::string& why) {
  MutexLock lock(&mutex_);
  if (state_.generation == generation && child_ != nullptr) {
    kill_reason_ = why;
    child_->Kill(SIGKILL);
  }
}

void EngineSupervisor::Loop() {
  absl::Duration delay = options_.first_delay;
  while (true) {
    if (RunOnce()) {
      delay = options_.first_delay;
    }
    on_change_();
    MutexLock lock(&mutex_);
    const absl::Duration end = clock_.MonotonicNow() + delay;
    while (!stopping_ && clock_.MonotonicNow() < end) {
      changed_.WaitFor(&mutex_, end - clock_.MonotonicNow());
    }
    if (stopping_) {
      stopped_ = true;
      changed_.NotifyAll();
      return;
    }
    delay = std::min(delay * 2, options_.longest_delay);
  }
}

bool EngineSupervisor::RunOnce() {
  unlink(options_.socket_path.c_str());  // of one that died
  std::vector<std::string> arguments = {"--socket", options_.socket_path, "--parent",
                                        absl::StrCat(getpid())};
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  ChildProcess* child = nullptr;
  {
    MutexLock lock(&mutex_);
    ++state_.generation;
    kill_reason_.clear();
    if (stopping_) {
      return false;
    }
    auto spawned = ChildProcess::Spawn(
        {options_.engine_path, arguments, options_.log_path, {kIdleThreadsSleep}});
    if (!spawned.ok()) {
      RecordDeath("ENGINE_DIED", std::string(spawned.status().message()));
      return false;
    }
    child_ = *std::move(spawned);
    child = child_.get();
    state_.pid = child->pid();
  }
  const bool answered = WaitUntilReady(*child);
  if (answered) {
    on_change_();
  }
  const ExitReport report = child->Wait();
  MutexLock lock(&mutex_);
  child_.reset();
  const bool stalled = report.exit_code == kStalledExitCode && kill_reason_.empty();
  RecordDeath(stalled ? "ENGINE_STALLED" : "ENGINE_DIED",
              DeathMessage(report, kill_reason_, options_.log_path));
  return answered;
}

void EngineSupervisor::AskForLife() {
  int64_t asked_generation = 0;
  int unanswered = 0;
  while (WaitForQuestion()) {
    const State state = GetState();
    if (!state.ready || state.generation != asked_generation) {
      asked_generation = state.generation;
      unanswered = 0;
    }
    if (!state.ready) {
      continue;
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(clock_.WallNow() + options_.question_interval));
    engine::v1::Engine engine;
    unanswered = state.stub->GetEngine(&context, {}, &engine).ok() ? 0 : unanswered + 1;
    if (unanswered >= options_.question_limit) {
      Kill(state.generation,
           absl::StrCat("it gave no sign of life for ",
                        absl::FormatDuration(2 * unanswered * options_.question_interval)));
      unanswered = 0;
    }
  }
}

// False when this one stops.
bool EngineSupervisor::WaitForQuestion() {
  MutexLock lock(&mutex_);
  const absl::Duration end = clock_.MonotonicNow() + options_.question_interval;
  while (!stopping_ && clock_.MonotonicNow() < end) {
    changed_.WaitFor(&mutex_, end - clock_.MonotonicNow());
  }
  return !stopping_;
}

void EngineSupervisor::RecordDeath(const std::string& code, const std::string& message) {
  state_.ready = false;
  state_.pid = 0;
  state_.stub.reset();
  state_.restart_count += stopping_ ? 0 : 1;
  state_.last_death.set_code(code);
  state_.last_death.set_message(message);
  if (!stopping_) {
    spdlog::error("the engine ended: {}", message);
  }
  dead_generation_ = state_.generation;
  changed_.NotifyAll();
}

bool EngineSupervisor::WaitUntilReady(ChildProcess& child) {
  std::shared_ptr<engine::v1::EngineService::StubInterface> stub =
      engine::v1::EngineService::NewStub(Connect(options_.socket_path));
  const absl::Duration end = clock_.MonotonicNow() + kReadyTimeout;
  while (!child.HasEnded()) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(clock_.WallNow() + kReadyPoll));
    engine::v1::Engine engine;
    if (stub->GetEngine(&context, {}, &engine).ok()) {
      MutexLock lock(&mutex_);
      state_.ready = !stopping_;
      state_.engine = engine;
      state_.stub = std::move(stub);
      return true;
    }
    if (clock_.MonotonicNow() > end) {
      MutexLock lock(&mutex_);
      kill_reason_ = absl::StrCat("it did not answer within ", absl::FormatDuration(kReadyTimeout),
                                  " of its start");
      child.Kill(SIGKILL);
      return false;
    }
  }
  return false;
}

}  // namespace megatrain
