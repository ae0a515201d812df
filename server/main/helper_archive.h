#ifndef SERVER_MAIN_HELPER_ARCHIVE_H_
#define SERVER_MAIN_HELPER_ARCHIVE_H_

#include <string_view>

namespace megatrain {

// The data helper's Python modules as a zip file (server/datasets/prepare), built into the daemon
// so that it is one file to install.
std::string_view HelperArchive();

}  // namespace megatrain

#endif  // SERVER_MAIN_HELPER_ARCHIVE_H_
