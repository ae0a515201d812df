// What the parts of the controller share; for them alone.

#ifndef SERVER_JOBS_JOB_CONTROLLER_CURRENT_H_
#define SERVER_JOBS_JOB_CONTROLLER_CURRENT_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "server/jobs/job_controller.h"

namespace megatrain {

// The engine's reason, and the controller's, for a checkpoint that the disk does not give.
inline constexpr char kCheckpointUnreadable[] = "CHECKPOINT_UNREADABLE";

// Of a reason's code: the system's own errors, EIO above all, as of a disk that does not give the
// model or the data.
inline bool IsSystemError(const std::string& code) {
  return code == "UNKNOWN" || code == "UNAVAILABLE";
}

inline v1::JobReason CancelledReason() {
  return MakeReason("CANCELLED_BY_USER", "the job was cancelled by a user");
}

struct JobController::Answer {
  int64_t number = 0;
  absl::Status status;
  JobMaterials::Prepared prepared;
  std::string version;
};

// Answers of the materials on their way to the controller's thread; outlives the controller as
// long as an answer is out.
class JobController::Inbox {
 public:
  explicit Inbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Put(Answer answer) {
    MutexLock lock(&mutex_);
    if (!closed_) {
      answers_.push_back(std::move(answer));
      wake_();
    }
  }

  std::vector<Answer> TakeAll() {
    MutexLock lock(&mutex_);
    return std::exchange(answers_, {});
  }

  // No wake after this.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  const std::function<void()> wake_;
  Mutex mutex_;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

struct JobController::Current {
  // In the order of a job's way.
  enum class Stage {
    kReserved,    // chosen; to be prepared
    kPreparing,   // the materials work
    kPrepared,    // its start is to be chosen
    kChosen,      // to be started once that is saved
    kRunning,     // the engine works
    kMustStop,    // the engine is to be stopped once that is saved
    kStopping,    // the engine stops
    kTrained,     // to be published once that is saved
    kPublishing,  // the materials work
    kEnded,       // final, paused or back in the queue, once that is saved
  };
  // Why the engine ends the run before its end.
  enum class StopReason { kNone, kCancel, kPause, kDrain, kPreempt };

  // The engine is to be asked for it, once what it follows from is saved.
  struct SaveRequest {
    v1::CheckpointTrigger trigger;
    bool then_stop;
  };

  JobChange change;
  Stage stage;
  StopReason stop_reason = StopReason::kNone;
  int64_t number = 0;  // of the preparation, run or publication that is out
  JobMaterials::Prepared prepared;
  std::optional<v1::Checkpoint> start;  // from which the run goes on
  std::string checkpoint_folder;
  std::optional<SaveRequest> save;
  int64_t saves_asked = 0;  // of those that were wished, by this run
  bool stepped = false;     // this run did a step
  std::string preempted_by;
  std::deque<engine::v1::CheckpointSaved> uncommitted;
  absl::Time next_commit = absl::InfinitePast();  // of them, after an error
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_CONTROLLER_CURRENT_H_
