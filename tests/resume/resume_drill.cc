#include "tests/resume/resume_drill.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "tests/resume/drill_job.h"

extern char** environ;

namespace megatrain {
namespace {

// What a child process printed.
struct Told {
  std::map<int64_t, std::string> losses;  // by step, as hexadecimal text: their bits
  int64_t first_step = 0;
  double write_seconds = 0;  // of all checkpoints, and so on
  double stall_seconds = 0;
  double written_bytes = 0;
  bool direct = true;
  bool killed = false;
};

void Note(const char* line, Told& told) {
  long long number = 0;
  char text[64] = "";
  double write = 0;
  double stall = 0;
  int direct = 0;
  if (std::sscanf(line, "from %lld", &number) == 1) {
    told.first_step = number;
  } else if (std::sscanf(line, "step %lld %63s", &number, text) == 2) {
    told.losses[number] = text;
  } else if (std::sscanf(line, "checkpoint %*s %lld %lf %lf %d", &number, &write, &stall,
                         &direct) == 4) {
    told.written_bytes += static_cast<double>(number);
    told.write_seconds += write;
    told.stall_seconds += stall;
    told.direct = told.direct && direct == 1;
  }
}

// Runs this program as a child that trains `name`; kills it once it tells of step `kill_after`.
absl::StatusOr<Told> RunChild(std::vector<std::string> arguments, const std::string& name,
                              int64_t kill_after) {
  arguments.insert(arguments.end(), {"--child", name});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(error, "cannot start a child");
  }
  Told told;
  FILE* output = fdopen(ends[0], "r");
  char line[256];
  while (fgets(line, sizeof(line), output) != nullptr) {
    Note(line, told);
    if (kill_after > 0 && told.losses.contains(kill_after) && !told.killed) {
      told.killed = kill(pid, SIGKILL) == 0;
    }
  }
  fclose(output);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!told.killed && status != 0) {
    return absl::InternalError(
        absl::StrCat("the child that trains ", name, " ended with status ", status));
  }
  return told;
}

absl::StatusOr<Checkpoint> LastCheckpoint(const DrillOptions& options, const std::string& name,
                                          FileSystem& files) {
  MT_ASSIGN_OR_RETURN(CheckpointListing listing,
                      ListCheckpoints(MakeDrillJob(options, name).save.folder, files));
  if (listing.valid.empty() || listing.valid.back().manifest.progress.step != options.steps) {
    return absl::InternalError(absl::StrCat(name, " left no checkpoint of its last step"));
  }
  return std::move(listing.valid.back());
}

absl::Status Drill(const DrillOptions& options, const std::vector<std::string>& arguments) {
  PosixFileSystem files;
  SystemClock clock;
  const absl::Duration start = clock.MonotonicNow();
  const auto tell = [&](const char* what) {
    std::fprintf(stderr, "drill, %.1f s: %s\n", absl::ToDoubleSeconds(clock.MonotonicNow() - start),
                 what);
  };
  tell("writes model and data");
  for (const char* name : {"whole", "killed"}) {
    MT_RETURN_IF_ERROR(files.RemoveTree(MakeDrillJob(options, name).save.folder));
  }
  MT_RETURN_IF_ERROR(WriteDrillInputs(options));
  tell("trains without a kill");
  MT_ASSIGN_OR_RETURN(const Told whole, RunChild(arguments, "whole", /*kill_after=*/0));
  MT_ASSIGN_OR_RETURN(const Checkpoint wanted, LastCheckpoint(options, "whole", files));
  MT_RETURN_IF_ERROR(files.RemoveTree(MakeDrillJob(options, "whole").save.folder));
  tell("trains, to be killed");
  MT_ASSIGN_OR_RETURN(const Told killed, RunChild(arguments, "killed", options.kill_after));
  tell("goes on from its newest checkpoint");
  MT_ASSIGN_OR_RETURN(const Told resumed, RunChild(arguments, "killed", /*kill_after=*/0));
  MT_ASSIGN_OR_RETURN(const Checkpoint found, LastCheckpoint(options, "killed", files));
  tell("checks the last checkpoint against the disk");
  MT_RETURN_IF_ERROR(VerifyCheckpoint(found, kCheckpointThreads, files));
  bool same_losses = killed.killed && !resumed.losses.empty();
  for (const Told* told : {&killed, &resumed}) {
    for (const auto& [step, loss] : told->losses) {
      same_losses = same_losses && whole.losses.contains(step) && whole.losses.at(step) == loss;
    }
  }
  const bool same_state = wanted.manifest.files == found.manifest.files;
  const double bytes = whole.written_bytes + resumed.written_bytes;
  std::printf(
      "{\"shape\": \"%s\", \"dtype\": \"%s\", \"checkpoint_bytes\": %lld, \"killed_after_step\": "
      "%lld, \"resumed_from_step\": %lld, \"same_losses\": %s, \"same_state\": %s, \"direct\": %s, "
      "\"save_gb_s\": %.3f, \"save_stall_s\": %.3f, \"drill_s\": %.1f}\n",
      options.shape.c_str(), options.dtype.c_str(), static_cast<long long>(found.SizeBytes()),
      static_cast<long long>(options.kill_after), static_cast<long long>(resumed.first_step),
      same_losses ? "true" : "false", same_state ? "true" : "false",
      whole.direct && resumed.direct ? "true" : "false",
      bytes / 1e9 / (whole.write_seconds + resumed.write_seconds),
      (whole.stall_seconds + resumed.stall_seconds) /
          (bytes / static_cast<double>(found.SizeBytes())),
      absl::ToDoubleSeconds(clock.MonotonicNow() - start));
  MT_RETURN_IF_ERROR(files.RemoveTree(MakeDrillJob(options, "killed").save.folder));
  return same_losses && same_state ? absl::OkStatus()
                                   : absl::InternalError("the resumed job has other bits");
}

}  // namespace

int ResumeDrillMain(int argc, char** argv, const MakeBackend& make_backend) {
  DrillOptions options;
  std::string child;
  CLI::App app("Kills and resumes a training, and compares its bits.", "resume_drill");
  app.add_option("--folder", options.folder, "Folder for everything it writes")->required();
  app.add_option("--shape", options.shape, "Shape of the model, by name");
  app.add_option("--layers", options.layers, "Its layers; 0: the shape's");
  app.add_option("--steps", options.steps, "Steps of the job");
  app.add_option("--every", options.every, "Steps from one checkpoint to the next");
  app.add_option("--kill-after", options.kill_after, "Step after whose end the process is killed");
  app.add_option("--rows", options.rows, "Rows of a step");
  app.add_option("--tokens", options.tokens, "Tokens of a row");
  app.add_option("--dtype", options.dtype, "Compute dtype")->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--child", child, "For itself: train the job of that name");
  CLI11_PARSE(app, argc, argv);
  absl::Status status;
  if (child.empty()) {
    status = Drill(options, {argv, argv + argc});
  } else {
    PosixFileSystem files;
    const auto backend = make_backend(files);
    status = backend.ok() ? RunDrillJob(options, child, **backend) : backend.status();
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}

}  // namespace megatrain
