#ifndef CLIENT_CLI_ENVIRONMENT_H_
#define CLIENT_CLI_ENVIRONMENT_H_

#include <functional>
#include <iosfwd>
#include <string>

#include "client/lib/interruption.h"
#include "runtime/base/clock.h"

namespace megatrain {

// All that a command knows of the process around it, so that a test can be that process.
struct Environment {
  std::ostream& out;  // data
  std::ostream& err;  // talk
  bool err_is_terminal = false;
  int width = 80;                                    // columns of that terminal
  bool unicode = false;                              // the locale has it
  std::function<std::string(const char*)> variable;  // "" when it is not set
  // Asks a question that yes or no answers; null when nobody is at the terminal.
  std::function<bool(const std::string&)> ask = nullptr;
  const Clock& clock;
  Interruption& interruption;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_ENVIRONMENT_H_
