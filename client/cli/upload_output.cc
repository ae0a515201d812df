#include "client/cli/upload_output.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(250);

}  // namespace

void UploadPrinter::OnHashed(int64_t hashed_bytes) {
  Redraw(absl::StrCat("reading: ", FormatBytes(hashed_bytes)));
}

void UploadPrinter::OnKnown() {
  Clear();
  session_.err() << "already there: nothing to send" << std::endl;
}

void UploadPrinter::OnSent(int64_t sent_bytes, int64_t size_bytes) {
  Redraw(absl::StrCat("sending: ", FormatBytes(sent_bytes), " of ", FormatBytes(size_bytes), ", ",
                      sent_bytes * 100 / size_bytes, " %"));
}

void UploadPrinter::OnResumed(int64_t offset_bytes) {
  Clear();
  session_.err() << "goes on at " << FormatBytes(offset_bytes) << std::endl;
}

void UploadPrinter::Clear() {
  if (line_shown_) {
    session_.err() << "\r\x1b[K" << std::flush;
    line_shown_ = false;
  }
}

void UploadPrinter::Redraw(const std::string& line) {
  const Environment& environment = session_.environment();
  const absl::Duration now = environment.clock.MonotonicNow();
  if (!environment.err_is_terminal || now - last_drawn_ < kRedrawInterval) {
    return;
  }
  last_drawn_ = now;
  session_.err() << "\r\x1b[K" << line << std::flush;
  line_shown_ = true;
}

}  // namespace megatrain
