#include "client/cli/verb_checkpoint_download.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/download_output.h"
#include "client/cli/interrupt_scope.h"
#include "client/cli/text.h"
#include "client/lib/download.h"
#include "client/lib/error_text.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// "addition-step-00000120", here.
std::string DefaultFolder(const std::string& checkpoint) {
  std::string folder = ShortCheckpointName(checkpoint);
  std::replace(folder.begin(), folder.end(), '/', '-');
  return folder;
}

// Without a slash at its end.
std::string AbsolutePath(const std::string& path) {
  const std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).string();
}

absl::StatusOr<ExitCode> Download(Session& session, const std::string& text,
                                  const std::string& path) {
  MT_ASSIGN_OR_RETURN(const std::string name, CheckpointName(text));
  const std::string folder = AbsolutePath(path.empty() ? DefaultFolder(name) : path);
  const InterruptScope scope(session.environment().interruption);
  const absl::Duration begin = session.environment().clock.MonotonicNow();
  PosixFileSystem files;
  DownloadPrinter printer(session);
  const absl::StatusOr<v1::Checkpoint> checkpoint =
      DownloadCheckpoint(session.connection(), files, name, folder, printer);
  printer.Clear();
  if (!checkpoint.ok()) {
    return session.environment().interruption.triggered()
               ? WithHint(checkpoint.status(), "the same command goes on where this one stopped")
               : checkpoint.status();
  }
  if (session.wants_json()) {
    session.PrintJson(*checkpoint);
  } else {
    session.out() << folder << std::endl;
  }
  session.err() << checkpoint->files_size() << " files, " << FormatBytes(checkpoint->size_bytes())
                << ", checked, " << FormatSpan(session.environment().clock.MonotonicNow() - begin)
                << std::endl;
  return ExitCode::kOk;
}

}  // namespace

void AddCheckpointDownload(CLI::App& noun, Verb& chosen) {
  struct Flags {
    std::string name;
    std::string folder;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = noun.add_subcommand("download", "Fetches one from the server, and checks it");
  verb->add_option("CHECKPOINT", flags->name, "JOB/CHECKPOINT")->required();
  verb->add_option("FOLDER", flags->folder,
                   "A folder that does not exist yet (else JOB-CHECKPOINT here)");
  verb->footer(
      "A repeat goes on where an interrupted one stopped. One that its running job may remove\n"
      "meanwhile is kept by megatrain checkpoint pin.");
  verb->callback([flags, &chosen] {
    chosen = [flags](Session& session) { return Download(session, flags->name, flags->folder); };
  });
}

}  // namespace megatrain
