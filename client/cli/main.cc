#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/app.h"

namespace {

int TerminalWidth() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  return value == nullptr ? "" : value;
}

bool Ask(const std::string& question) {
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "yes";
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");   // NOLINT(concurrency-mt-unsafe): no threads yet
  std::signal(SIGPIPE, SIG_DFL);  // `megatrain ps | head` ends in silence
  megatrain::SystemClock clock;
  megatrain::Interruption interruption;
  megatrain::Environment environment{
      .out = std::cout,
      .err = std::cerr,
      .err_is_terminal = isatty(STDERR_FILENO) == 1,
      .width = TerminalWidth(),
      .unicode = std::string(nl_langinfo(CODESET)) == "UTF-8",
      .variable = Variable,
      .clock = clock,
      .interruption = interruption,
  };
  if (isatty(STDIN_FILENO) == 1 && environment.err_is_terminal) {
    environment.ask = Ask;
  }
  return megatrain::RunApp(std::vector<std::string>(argv + 1, argv + argc), environment);
}
