#ifndef CLIENT_CLI_STATUS_LINE_H_
#define CLIENT_CLI_STATUS_LINE_H_

#include <string>

#include "absl/time/time.h"
#include "client/cli/session.h"

namespace megatrain {

// A line on the terminal that is written over and over; nothing where there is no terminal.
class StatusLine {
 public:
  // `session` outlives it.
  explicit StatusLine(Session& session) : session_(session) {}

  // Four times a second at most: what comes too early is left out.
  void Redraw(const std::string& line);

  // Before anything else is written.
  void Clear();

 private:
  Session& session_;
  absl::Duration last_drawn_ = -absl::InfiniteDuration();
  bool shown_ = false;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_STATUS_LINE_H_
