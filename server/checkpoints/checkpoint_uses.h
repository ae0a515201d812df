#ifndef SERVER_CHECKPOINTS_CHECKPOINT_USES_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_USES_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// A checkpoint that nobody removes as long as this lives.
using CheckpointInUse = std::shared_ptr<const v1::Checkpoint>;

// Who uses which checkpoint now. Thread-safe.
class CheckpointUses {
 public:
  // The clock outlives this, and this every use.
  explicit CheckpointUses(const Clock& clock) : clock_(clock) {}

  CheckpointInUse Begin(const v1::Checkpoint& checkpoint);

  // One that is in use is read by a client, who may want its next file in a moment.
  void NoteReader(const v1::Checkpoint& checkpoint);

  bool InUse(const std::string& uid);

  // In use, or read a moment ago.
  bool IsWanted(const std::string& uid);

 private:
  struct Uses {
    int count = 0;
    bool read = false;
    absl::Duration last_end;  // monotonic
  };

  void End(const std::string& uid);
  void ForgetOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Uses> uses_ ABSL_GUARDED_BY(mutex_);  // by uid
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_USES_H_
