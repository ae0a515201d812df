#include "client/cli/pending_request.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "client/cli/text_file.h"
#include "client/lib/random.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kUuidCharacters = 36;

// Of the XDG base directories: state that outlives a process and matters to nobody else.
std::string Folder(const Environment& environment) {
  const std::string state = environment.variable("XDG_STATE_HOME");
  if (!state.empty()) {
    return state + "/megatrain/pending";
  }
  const std::string home = environment.variable("HOME");
  return home.empty() ? "" : home + "/.local/state/megatrain/pending";
}

}  // namespace

PendingRequest::PendingRequest(const Environment& environment, std::string_view content)
    : id_(NewRequestId()) {
  const std::string folder = Folder(environment);
  std::error_code error;
  if (folder.empty() || (fs::create_directories(folder, error), error)) {
    return;
  }
  path_ = folder + "/" + RequestIdFor(content);
  const absl::StatusOr<std::string> left_over = ReadTextFile(path_, kUuidCharacters);
  if (left_over.ok() && left_over->size() == kUuidCharacters) {
    id_ = *left_over;
    return;
  }
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  if (!(file << id_ << std::flush)) {
    Answered();
  }
}

void PendingRequest::Answered() {
  if (!path_.empty()) {
    std::error_code ignored;  // nothing can be done about a file that stays
    fs::remove(path_, ignored);
  }
}

}  // namespace megatrain
