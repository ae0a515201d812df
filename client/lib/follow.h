// Follows a job to its end across broken streams and restarted servers.

#ifndef CLIENT_LIB_FOLLOW_H_
#define CLIENT_LIB_FOLLOW_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/connection.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/job_service.pb.h"

namespace megatrain {

struct FollowOptions {
  // A stream without a message for so long is given up; servers send a heartbeat each 15 s.
  absl::Duration heartbeat_timeout = absl::Seconds(45);
  absl::Duration first_pause = absl::Seconds(1);  // before a new stream, half of it is jitter
  absl::Duration max_pause = absl::Seconds(5);
  absl::Duration tick = absl::Milliseconds(100);  // longest time between two looks at Ctrl-C
};

// Told what happens, on the thread that follows.
class FollowSink {
 public:
  virtual ~FollowSink() = default;

  // A snapshot, the final event, or anything between them but heartbeats. Each once, in order; a
  // snapshot with every new stream.
  virtual void OnEvent(const v1::JobEvent& event) = 0;

  // The stream broke; another one will be tried.
  virtual void OnLost(const absl::Status& why) = 0;

  // A new stream has told what was missed: so many events.
  virtual void OnReconnected(int caught_up_count) = 0;

  // Time to redraw.
  virtual void OnTick() = 0;
};

// Returns the final job. CANCELLED after an interruption, DEADLINE_EXCEEDED after the connection's
// timeout; other errors are the server's. The job goes on in each of these cases.
absl::StatusOr<v1::Job> FollowJob(Connection& connection, const std::string& name, FollowSink& sink,
                                  const FollowOptions& options = {});

// Waits for the first checkpoint of `cursor.name` that is committed after `cursor.after_sequence`,
// which CreateCheckpoint told. When it cannot be written, RESOURCE_EXHAUSTED for a full disk and
// INTERNAL for others, with the server's reason; FAILED_PRECONDITION when the job ends or pauses
// without one; others as of FollowJob.
absl::StatusOr<v1::Checkpoint> FollowCheckpoint(Connection& connection, v1::WatchJobRequest cursor,
                                                const FollowOptions& options = {});

// Writes a job's log from `request.offset_bytes` on, each byte once: to its present end, or with
// `request.follow` until the job ends. Errors as of FollowJob.
absl::Status FollowLog(Connection& connection, v1::StreamLogsRequest request,
                       const std::function<void(std::string_view)>& write,
                       const FollowOptions& options = {});

}  // namespace megatrain

#endif  // CLIENT_LIB_FOLLOW_H_
