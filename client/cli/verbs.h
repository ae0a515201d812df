// The verbs of the command line, each in the file of its name: adds its flags to the application
// and, when it is the one on the command line, sets `chosen`.

#ifndef CLIENT_CLI_VERBS_H_
#define CLIENT_CLI_VERBS_H_

#include "CLI/CLI.hpp"
#include "client/cli/session.h"

namespace megatrain {

void AddSubmit(CLI::App& app, Verb& chosen);
void AddPlan(CLI::App& app, Verb& chosen);
void AddPs(CLI::App& app, Verb& chosen);
void AddWatch(CLI::App& app, Verb& chosen);
void AddLogs(CLI::App& app, Verb& chosen);
void AddShow(CLI::App& app, Verb& chosen);
void AddPause(CLI::App& app, Verb& chosen);
void AddResume(CLI::App& app, Verb& chosen);
void AddFork(CLI::App& app, Verb& chosen);
void AddCancel(CLI::App& app, Verb& chosen);
void AddCheckpoint(CLI::App& app, Verb& chosen);
void AddModel(CLI::App& app, Verb& chosen);
void AddDataset(CLI::App& app, Verb& chosen);
void AddServer(CLI::App& app, Verb& chosen);

}  // namespace megatrain

#endif  // CLIENT_CLI_VERBS_H_
