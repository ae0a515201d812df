// Sends a file to a server, resumably.

#ifndef CLIENT_LIB_UPLOAD_H_
#define CLIENT_LIB_UPLOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "megatrain/v1/dataset.pb.h"

namespace megatrain {

// Told how an upload goes, on the thread that uploads.
class UploadSink {
 public:
  virtual ~UploadSink() = default;

  // The file is read once before anything is sent.
  virtual void OnHashed(int64_t hashed_bytes) = 0;

  // The server has the file already: nothing is sent.
  virtual void OnKnown() = 0;

  // So many bytes of the file were handed to the network.
  virtual void OnSent(int64_t sent_bytes, int64_t size_bytes) = 0;

  // A stream broke, or another process sent the beginning: it goes on from `offset_bytes`.
  virtual void OnResumed(int64_t offset_bytes) = 0;
};

// Returns the finalized upload. A broken stream is taken up where the server has the bytes for
// good; it gives up after connection.options().attempts streams in a row that added nothing. A
// repeat from another process goes on with the same upload.
absl::StatusOr<v1::Upload> UploadFile(Connection& connection, const std::string& path,
                                      UploadSink& sink);

}  // namespace megatrain

#endif  // CLIENT_LIB_UPLOAD_H_
