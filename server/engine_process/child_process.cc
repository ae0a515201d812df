#include "server/engine_process/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

// posix_spawn's two arguments, freed at the end.
struct SpawnArguments {
  SpawnArguments() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnArguments() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

void SetUp(SpawnArguments& spawn, const std::string& log_path) {
  posix_spawn_file_actions_addopen(&spawn.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&spawn.actions, STDOUT_FILENO, log_path.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0640);
  posix_spawn_file_actions_adddup2(&spawn.actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&spawn.actions, STDERR_FILENO + 1);
  sigset_t signals;
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&spawn.attributes, &signals);
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&spawn.attributes, &signals);
  posix_spawnattr_setpgroup(&spawn.attributes, 0);
  posix_spawnattr_setflags(&spawn.attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

// This process's own, and of `more` what it lacks; points into both.
std::vector<char*> Environment(const std::vector<std::string>& more) {
  std::vector<char*> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    result.push_back(*entry);
  }
  for (const std::string& entry : more) {
    if (getenv(entry.substr(0, entry.find('=')).c_str()) == nullptr) {
      result.push_back(const_cast<char*>(entry.c_str()));
    }
  }
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string InWords(const ExitReport& report) {
  return report.signal != 0 ? absl::StrCat("was killed by signal ", report.signal, " (",
                                           strsignal(report.signal), ")")
                            : absl::StrCat("ended with exit code ", report.exit_code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(const Options& options) {
  SpawnArguments spawn;
  SetUp(spawn, options.log_path);
  std::vector<char*> arguments = {const_cast<char*>(options.path.c_str())};
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, options.path.c_str(), &spawn.actions, &spawn.attributes,
                                arguments.data(), Environment(options.environment).data());
  if (error != 0) {
    return absl::ErrnoToStatus(
        error, absl::StrCat("starting ", options.path, " with log ", options.log_path));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
}

ChildProcess::~ChildProcess() {
  MutexLock lock(&mutex_);
  MT_CHECK(reaped_);
}

ExitReport ChildProcess::Wait() {
  // Leaves it to be reaped, so that Kill cannot hit another process meanwhile.
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  MutexLock lock(&mutex_);
  if (!reaped_) {
    int status = 0;
    MT_CHECK(waitpid(pid_, &status, 0) == pid_);
    report_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    report_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    reaped_ = true;
  }
  return report_;
}

bool ChildProcess::HasEnded() {
  MutexLock lock(&mutex_);
  siginfo_t info = {};
  return reaped_ ||
         (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
          info.si_pid == pid_);
}

void ChildProcess::Kill(int signal) {
  MutexLock lock(&mutex_);
  if (!reaped_) {
    kill(-pid_, signal);
  }
}

}  // namespace megatrain
