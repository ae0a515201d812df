// Times cuBLASLt's algorithms for a product against each other.

#ifndef RUNTIME_KERNELS_MATMUL_TIMER_H_
#define RUNTIME_KERNELS_MATMUL_TIMER_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/matmul_choices.h"
#include "runtime/kernels/matmul_plan.h"

namespace megatrain {

struct MatmulTiming {
  double warm_up_seconds = 0;
  int rounds = 1;  // all candidates take turns so often
  // After kTrialRounds, candidates slower than the best by more than this factor are left out,
  // but never the first.
  double drop_factor = std::numeric_limits<double>::infinity();
  // Each that is left then runs alone for so long, and the second half of that counts. Nothing is
  // gained by it, and it is not done, where a run takes less than kShortRunSeconds.
  double lasting_seconds = 0;
};

// Runs on the default stream of the current device and waits for it. A chip that is limited by its
// power slows down after some time: so candidates take turns of kTurnSeconds, and none runs on a
// cooler chip than another. But in turns all run at one clock: what a candidate's own hunger for
// power costs shows only when it runs alone until the clock has followed. One thread at a time.
class MatmulTimer {
 public:
  static constexpr double kTurnSeconds = 0.004;
  static constexpr int kTrialRounds = 3;
  static constexpr double kShortRunSeconds = 0.0004;

  // Takes device memory for any one of `samples` at a time, until it ends.
  static absl::StatusOr<std::unique_ptr<MatmulTimer>> Create(
      const std::vector<MatmulSample>& samples);
  ~MatmulTimer();
  MatmulTimer(const MatmulTimer&) = delete;
  MatmulTimer& operator=(const MatmulTimer&) = delete;

  // Seconds of one run of each of the heuristic's first kMatmulCandidates, in its order and by the
  // GPU's clock, on random numbers: medians over rounds, or the mean of the lasting run; infinity
  // for what was left out. `sample` is one of Create's.
  absl::StatusOr<std::vector<double>> Time(const MatmulSample& sample, const MatmulTiming& timing);

 private:
  struct Candidate {
    MatmulPlan plan;
    std::vector<double> seconds;  // of one run, by round
    bool dropped = false;
  };

  MatmulTimer() = default;

  // Operands of a problem in `memory_`: random factors, zeros for what is added.
  absl::StatusOr<MatmulOperands> FillOperands(const MatmulSample& sample);
  absl::Status FillRandom(ComputeDtype dtype, char* to, int64_t size_bytes);

  // A turn of `runs` for each candidate. Returns the seconds of all.
  absl::StatusOr<double> Round(const MatmulOperands& operands, int runs,
                               std::vector<Candidate>& candidates);
  // Brings the chip to its lasting speed, and returns how many runs of the first fill a turn.
  absl::StatusOr<int> WarmUp(const MatmulOperands& operands, double seconds,
                             std::vector<Candidate>& candidates);

  static void DropSlow(double drop_factor, std::vector<Candidate>& candidates);
  // Seconds of one run in the second half of `seconds` of nothing else.
  absl::StatusOr<double> LastingSeconds(const MatmulOperands& operands, double seconds,
                                        const Candidate& candidate);
  absl::Status RunTimes(const MatmulOperands& operands, int64_t times, const MatmulPlan& plan);

  std::vector<float> numbers_;
  cublasLtHandle_t handle_ = nullptr;
  char* memory_ = nullptr;
  int64_t size_bytes_ = 0;
  std::vector<cudaEvent_t> events_;  // kMatmulCandidates + 1
};

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_MATMUL_TIMER_H_
