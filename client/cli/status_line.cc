#include "client/cli/status_line.h"

#include <ostream>

namespace megatrain {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(250);

}  // namespace

void StatusLine::Redraw(const std::string& line) {
  const Environment& environment = session_.environment();
  const absl::Duration now = environment.clock.MonotonicNow();
  if (!environment.err_is_terminal || now - last_drawn_ < kRedrawInterval) {
    return;
  }
  last_drawn_ = now;
  session_.err() << "\r\x1b[K" << line << std::flush;
  shown_ = true;
}

void StatusLine::Clear() {
  if (shown_) {
    session_.err() << "\r\x1b[K" << std::flush;
    shown_ = false;
  }
}

}  // namespace megatrain
