#ifndef CLIENT_CLI_DOWNLOAD_OUTPUT_H_
#define CLIENT_CLI_DOWNLOAD_OUTPUT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/cli/session.h"
#include "client/cli/status_line.h"
#include "client/lib/download.h"

namespace megatrain {

// A download on the terminal: a line that is redrawn on a terminal, only what is out of the
// ordinary elsewhere.
class DownloadPrinter final : public DownloadSink {
 public:
  explicit DownloadPrinter(Session& session);

  void OnReceived(int64_t received_bytes, int64_t size_bytes) override;
  void OnResumed(int64_t received_bytes) override;
  void OnDamaged(const std::string& path) override;

  // Before anything else is written.
  void Clear() { line_.Clear(); }

 private:
  Session& session_;
  StatusLine line_;
  // From where speed is counted: what an earlier process fetched is no speed.
  absl::Duration begin_;
  int64_t begin_bytes_ = 0;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_DOWNLOAD_OUTPUT_H_
