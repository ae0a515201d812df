// Fetches a checkpoint from a server, resumably.

#ifndef CLIENT_LIB_DOWNLOAD_H_
#define CLIENT_LIB_DOWNLOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/connection.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/base/file_system.h"

namespace megatrain {

struct DownloadOptions {
  // A stream without a byte for so long is given up and opened again.
  absl::Duration silence_limit = absl::Seconds(45);
  absl::Duration tick = absl::Milliseconds(100);  // longest time between two looks at Ctrl-C
};

// Told how a download goes, on the thread that downloads.
class DownloadSink {
 public:
  virtual ~DownloadSink() = default;

  // So many bytes of the checkpoint's files lie on the disk.
  virtual void OnReceived(int64_t received_bytes, int64_t size_bytes) = 0;

  // A stream broke, or an earlier process fetched the beginning: it goes on from there.
  virtual void OnResumed(int64_t received_bytes) = 0;

  // A file is not what its checksums say: it is fetched again, once.
  virtual void OnDamaged(const std::string& path) = 0;
};

// Fetches the checkpoint `name` into `folder`, an absolute path that nothing has until all files
// are there, have the sizes and checksums that the server tells, and are on the disk. Until then
// they lie beside it in "<folder>.partial-...", where a repeat, also of another process, goes on.
// A broken stream is taken up where it broke; it gives up when connection.options().patience and as
// many streams as options().attempts have brought nothing.
// ALREADY_EXISTS when the folder is there, FAILED_PRECONDITION while another process fetches into
// it, RESOURCE_EXHAUSTED when the disk lacks the room, DATA_LOSS when a file is damaged twice,
// CANCELLED after an interruption; others are the server's or the disk's.
absl::StatusOr<v1::Checkpoint> DownloadCheckpoint(Connection& connection, FileSystem& files,
                                                  const std::string& name,
                                                  const std::string& folder, DownloadSink& sink,
                                                  const DownloadOptions& options = {});

}  // namespace megatrain

#endif  // CLIENT_LIB_DOWNLOAD_H_
