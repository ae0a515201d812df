#ifndef CLIENT_CLI_PENDING_REQUEST_H_
#define CLIENT_CLI_PENDING_REQUEST_H_

#include <string>
#include <string_view>

#include "client/cli/environment.h"

namespace megatrain {

// The ID of a request that may already have reached the server: it lies in a file until an answer
// comes, so that the same command after a lost connection is the same request, and no second job.
// Where no file can be written (no home, a full disk) the ID is just random.
class PendingRequest {
 public:
  // `content` is what makes two requests the same: address and message, without the ID.
  PendingRequest(const Environment& environment, std::string_view content);

  const std::string& id() const { return id_; }

  // An answer is there: the next same command is a new request.
  void Answered();

 private:
  std::string path_;  // empty: no file
  std::string id_;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_PENDING_REQUEST_H_
