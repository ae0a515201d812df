#include "server/datasets/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

constexpr size_t kKeptBytes = size_t{64} << 10;

// How often a deadline is looked at: the clock may be a test's.
constexpr int kPollMilliseconds = 50;

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make a pipe");
  }
  return Pipe{ends[0], ends[1]};
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));  // execve does not write to it
  }
  pointers.push_back(nullptr);
  return pointers;
}

// The new process's pid, or a negative errno.
pid_t Spawn(const HelperProcess::Command& command, int output_fd, int errors_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors_fd, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, command.arguments[0].c_str(), &actions, &attributes,
                    Pointers(command.arguments).data(), Pointers(command.environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -error;
}

// Appends what can be read now and keeps the tail; closes `fd` at its end. Returns the bytes read.
int ReadSome(int& fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = ::read(fd, buffer.data(), buffer.size());
  if (count > 0) {
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > 2 * kKeptBytes) text.erase(0, text.size() - kKeptBytes);
    return static_cast<int>(count);
  }
  if (count == 0 || errno != EINTR) {
    ::close(fd);
    fd = -1;
  }
  return 0;
}

// Reads what the pipe holds now, and not what somebody else may still write to it.
void ReadRest(int& fd, std::string& text) {
  int left_bytes = 0;
  if (fd < 0 || ::ioctl(fd, FIONREAD, &left_bytes) != 0) return;
  while (fd >= 0 && left_bytes > 0) left_bytes -= ReadSome(fd, text);
}

void KeepTail(std::string& text) {
  if (text.size() > kKeptBytes) text.erase(0, text.size() - kKeptBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HelperProcess>> HelperProcess::Start(const Command& command,
                                                                    const Clock& clock) {
  absl::StatusOr<Pipe> output = MakePipe();
  if (!output.ok()) return output.status();
  absl::StatusOr<Pipe> errors = MakePipe();
  if (!errors.ok()) {
    ::close(output->read_end);
    ::close(output->write_end);
    return errors.status();
  }
  const pid_t pid = Spawn(command, output->write_end, errors->write_end);
  ::close(output->write_end);
  ::close(errors->write_end);
  if (pid < 0) {
    ::close(output->read_end);
    ::close(errors->read_end);
    return absl::ErrnoToStatus(-pid, absl::StrCat("cannot start ", command.arguments[0]));
  }
  std::unique_ptr<HelperProcess> process(
      new HelperProcess(pid, output->read_end, errors->read_end, clock));
  // glibc 2.36 declares pidfd_open without extern "C".
  process->pid_fd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (process->pid_fd_ < 0) return absl::ErrnoToStatus(errno, "cannot watch a process");
  return process;
}

HelperProcess::~HelperProcess() {
  KillGroup();
  Outcome ignored;
  Reap(ignored);
  if (output_fd_ >= 0) ::close(output_fd_);
  if (errors_fd_ >= 0) ::close(errors_fd_);
  if (pid_fd_ >= 0) ::close(pid_fd_);
}

HelperProcess::Outcome HelperProcess::Wait(absl::Duration time_limit) {
  const absl::Duration deadline = clock_.MonotonicNow() + time_limit;
  Outcome outcome;
  while (!ReadStreams(outcome)) {
    if (clock_.MonotonicNow() < deadline) continue;
    outcome.timed_out = true;
    KillGroup();
  }
  KillGroup();
  ReadRest(output_fd_, outcome.output);
  ReadRest(errors_fd_, outcome.errors);
  KeepTail(outcome.output);
  KeepTail(outcome.errors);
  Reap(outcome);
  return outcome;
}

void HelperProcess::Kill() {
  {
    MutexLock lock(&mutex_);
    killed_ = true;
  }
  KillGroup();
}

bool HelperProcess::ReadStreams(Outcome& outcome) {
  // poll ignores a negative descriptor.
  std::array<pollfd, 3> waits = {pollfd{output_fd_, POLLIN, 0}, pollfd{errors_fd_, POLLIN, 0},
                                 pollfd{pid_fd_, POLLIN, 0}};
  if (::poll(waits.data(), waits.size(), kPollMilliseconds) <= 0) return false;
  if (waits[0].revents != 0) ReadSome(output_fd_, outcome.output);
  if (waits[1].revents != 0) ReadSome(errors_fd_, outcome.errors);
  return waits[2].revents != 0;
}

void HelperProcess::KillGroup() {
  MutexLock lock(&mutex_);
  if (!reaped_) ::kill(-pid_, SIGKILL);
}

void HelperProcess::Reap(Outcome& outcome) {
  {
    MutexLock lock(&mutex_);
    if (reaped_) return;
  }
  // Until it is reaped its pid stays its own, so that Kill need not wait for this.
  siginfo_t info = {};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  MutexLock lock(&mutex_);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  outcome.killed = killed_;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
}

}  // namespace megatrain
