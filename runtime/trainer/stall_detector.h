#ifndef RUNTIME_TRAINER_STALL_DETECTOR_H_
#define RUNTIME_TRAINER_STALL_DETECTOR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "runtime/pipeline/pipeline_progress.h"

namespace megatrain {

// What a job is seen to do at one moment.
struct JobLook {
  std::string phase;       // long work of the job's own thread, such as "loading"; empty: none
  int64_t beat_count = 0;  // pieces of such work that are done
  std::optional<PipelineProgress> pipeline;  // while there is one
};

// Tells from looks at a job whether it moves: an operation that ends on any stream is progress, and
// so is a piece of long work. A job with nothing to do (its pipeline is empty while it waits for
// whom it tells) does not stall. A pure function of the looks and their times.
class StallDetector {
 public:
  // A longer time between two looks counts as this much: nobody looked, so the whole process stood
  // still, and the job with it.
  static constexpr absl::Duration kLongestGap = absl::Seconds(10);

  // Returns for how long the job had something to do and did none of it. `now` never goes back.
  absl::Duration Take(const JobLook& look, absl::Duration now);

  // By the last two looks, what each stream with something to do is about, in words: "compute is in
  // layer_forward unit 3 micro-batch 0; h2d waits for slot_free before load_weights unit 5".
  std::string Describe() const;

 private:
  bool Moved(const JobLook& look) const;

  std::optional<JobLook> last_;
  std::optional<JobLook> before_last_;
  absl::Duration last_time_;
  absl::Duration stalled_;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_STALL_DETECTOR_H_
