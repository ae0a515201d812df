#ifndef CLIENT_CLI_VERB_CHECKPOINT_DOWNLOAD_H_
#define CLIENT_CLI_VERB_CHECKPOINT_DOWNLOAD_H_

#include "CLI/CLI.hpp"
#include "client/cli/session.h"

namespace megatrain {

// `download`, below the noun `checkpoint`.
void AddCheckpointDownload(CLI::App& noun, Verb& chosen);

}  // namespace megatrain

#endif  // CLIENT_CLI_VERB_CHECKPOINT_DOWNLOAD_H_
