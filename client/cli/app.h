#ifndef CLIENT_CLI_APP_H_
#define CLIENT_CLI_APP_H_

#include <string>
#include <vector>

#include "client/cli/environment.h"

namespace megatrain {

// One run of the command line; `arguments` without the program's name. Returns the exit code.
int RunApp(const std::vector<std::string>& arguments, Environment& environment);

}  // namespace megatrain

#endif  // CLIENT_CLI_APP_H_
