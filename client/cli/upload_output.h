#ifndef CLIENT_CLI_UPLOAD_OUTPUT_H_
#define CLIENT_CLI_UPLOAD_OUTPUT_H_

#include <cstdint>

#include "client/cli/session.h"
#include "client/cli/status_line.h"
#include "client/lib/upload.h"

namespace megatrain {

// An upload on the terminal: a line that is redrawn on a terminal, only what is out of the
// ordinary elsewhere.
class UploadPrinter final : public UploadSink {
 public:
  explicit UploadPrinter(Session& session) : session_(session), line_(session) {}

  void OnHashed(int64_t hashed_bytes) override;
  void OnKnown() override;
  void OnSent(int64_t sent_bytes, int64_t size_bytes) override;
  void OnResumed(int64_t offset_bytes) override;

  // Before anything else is written.
  void Clear() { line_.Clear(); }

 private:
  Session& session_;
  StatusLine line_;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_UPLOAD_OUTPUT_H_
