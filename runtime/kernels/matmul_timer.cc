#include "runtime/kernels/matmul_timer.h"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/matmul_scratch.h"

namespace megatrain {
namespace {

constexpr int64_t kAlignmentBytes = 256;

// Normal numbers that repeat at a length which shares no factor with a row's.
constexpr int64_t kRandomNumbers = (int64_t{1} << 20) + 7;

std::vector<float> NormalNumbers() {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.5f);
  std::vector<float> numbers(kRandomNumbers);
  std::generate(numbers.begin(), numbers.end(), [&] { return normal(generator); });
  return numbers;
}

int64_t AlignedBytes(int64_t elements, ComputeDtype dtype) {
  return (elements * SizeBytes(dtype) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// Where a problem's matrices begin, in bytes.
struct Places {
  explicit Places(const MatmulProblem& p)
      : b(AlignedBytes(p.ElementsOfA(), p.input_dtype)),
        d(b + AlignedBytes(p.ElementsOfB(), p.input_dtype)),
        bias(d + AlignedBytes(p.ElementsOfD(), p.output_dtype)),
        scratch(bias + AlignedBytes(p.has_bias ? p.m : 0, p.output_dtype)),
        end(scratch + kMatmulScratchBytes) {}

  int64_t b, d, bias, scratch, end;  // a is at 0
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MatmulTimer>> MatmulTimer::Create(
    const std::vector<MatmulSample>& samples) {
  std::unique_ptr<MatmulTimer> timer(new MatmulTimer);
  timer->numbers_ = NormalNumbers();
  MT_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&timer->handle_), "cublasLtCreate"));
  for (int i = 0; i <= kMatmulCandidates; ++i) {
    cudaEvent_t event = nullptr;
    MT_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "cudaEventCreate"));
    timer->events_.push_back(event);
  }
  for (const MatmulSample& sample : samples) {
    timer->size_bytes_ = std::max(timer->size_bytes_, Places(sample.problem).end);
  }
  void* memory = nullptr;
  const cudaError_t allocated = cudaMalloc(&memory, timer->size_bytes_);
  cudaGetLastError();  // else a later launch, whoever makes it, would report this
  MT_RETURN_IF_ERROR(CudaStatus(allocated, "cudaMalloc of the matrix products to be timed"));
  timer->memory_ = static_cast<char*>(memory);
  return timer;
}

MatmulTimer::~MatmulTimer() {
  cudaFree(memory_);
  for (const cudaEvent_t event : events_) {
    cudaEventDestroy(event);
  }
  if (handle_ != nullptr) {
    cublasLtDestroy(handle_);
  }
}

absl::StatusOr<std::vector<double>> MatmulTimer::Time(const MatmulSample& sample,
                                                      const MatmulTiming& timing) {
  MT_ASSIGN_OR_RETURN(const std::vector<MatmulPlan> plans,
                      FindMatmulPlans(handle_, sample.problem, kMatmulCandidates));
  MT_ASSIGN_OR_RETURN(const MatmulOperands operands, FillOperands(sample));
  std::vector<Candidate> candidates;
  candidates.reserve(plans.size());
  for (const MatmulPlan& plan : plans) {
    candidates.push_back({.plan = plan, .seconds = {}});
  }
  MT_ASSIGN_OR_RETURN(const int runs, WarmUp(operands, timing.warm_up_seconds, candidates));
  for (int round = 1; round <= timing.rounds; ++round) {
    MT_RETURN_IF_ERROR(Round(operands, runs, candidates).status());
    if (round == kTrialRounds) {
      DropSlow(timing.drop_factor, candidates);
    }
  }
  const bool lasts =
      timing.lasting_seconds > 0 && Median(candidates.front().seconds) >= kShortRunSeconds;
  std::vector<double> seconds;
  for (const Candidate& candidate : candidates) {
    seconds.push_back(candidate.dropped ? std::numeric_limits<double>::infinity()
                                        : Median(candidate.seconds));
    if (lasts && !candidate.dropped) {
      MT_ASSIGN_OR_RETURN(seconds.back(),
                          LastingSeconds(operands, timing.lasting_seconds, candidate));
    }
  }
  return seconds;
}

absl::StatusOr<double> MatmulTimer::LastingSeconds(const MatmulOperands& operands, double seconds,
                                                   const Candidate& candidate) {
  const auto half = static_cast<int64_t>(std::ceil(seconds / 2 / Median(candidate.seconds)));
  MT_RETURN_IF_ERROR(RunTimes(operands, half, candidate.plan));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(events_[0], nullptr), "cudaEventRecord"));
  MT_RETURN_IF_ERROR(RunTimes(operands, half, candidate.plan));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(events_[1], nullptr), "cudaEventRecord"));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(events_[1]), "timing of matrix products"));
  float milliseconds = 0;
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]),
                                "cudaEventElapsedTime"));
  return milliseconds * 1e-3 / static_cast<double>(half);
}

absl::Status MatmulTimer::RunTimes(const MatmulOperands& operands, int64_t times,
                                   const MatmulPlan& plan) {
  char* const scratch = memory_ + size_bytes_ - kMatmulScratchBytes;
  for (int64_t i = 0; i < times; ++i) {
    MT_RETURN_IF_ERROR(RunMatmul(handle_, plan, operands, scratch, nullptr));
  }
  return absl::OkStatus();
}

void MatmulTimer::DropSlow(double drop_factor, std::vector<Candidate>& candidates) {
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    best = std::min(best, Median(candidate.seconds));
  }
  for (size_t i = 1; i < candidates.size(); ++i) {
    candidates[i].dropped = Median(candidates[i].seconds) > drop_factor * best;
  }
}

absl::StatusOr<MatmulOperands> MatmulTimer::FillOperands(const MatmulSample& sample) {
  const MatmulProblem& problem = sample.problem;
  const Places places(problem);
  MT_CHECK(places.end <= size_bytes_);
  MT_RETURN_IF_ERROR(FillRandom(problem.input_dtype, memory_, places.d));
  MT_RETURN_IF_ERROR(
      CudaStatus(cudaMemset(memory_ + places.d, 0, places.end - places.d), "cudaMemset"));
  return MatmulOperands{.a = memory_,
                        .b = memory_ + places.b,
                        .c = memory_ + places.d,
                        .d = memory_ + places.d,
                        .bias = problem.has_bias ? memory_ + places.bias : nullptr,
                        .beta = sample.accumulates ? 1.0f : 0.0f};
}

absl::Status MatmulTimer::FillRandom(ComputeDtype dtype, char* to, int64_t size_bytes) {
  std::vector<__nv_bfloat16> rounded;
  const void* from = numbers_.data();
  if (dtype == ComputeDtype::kBfloat16) {
    rounded.resize(kRandomNumbers);
    std::transform(numbers_.begin(), numbers_.end(), rounded.begin(),
                   [](float number) { return __float2bfloat16_rn(number); });
    from = rounded.data();
  }
  int64_t filled = std::min(size_bytes, kRandomNumbers * SizeBytes(dtype));
  MT_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(to, from, filled, cudaMemcpyHostToDevice),
                                "cudaMemcpy of random numbers"));
  for (int64_t count = 0; filled < size_bytes; filled += count) {
    count = std::min(filled, size_bytes - filled);
    MT_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(to + filled, to, count, cudaMemcpyDeviceToDevice),
                                  "cudaMemcpy of random numbers"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> MatmulTimer::Round(const MatmulOperands& operands, int runs,
                                          std::vector<Candidate>& candidates) {
  const auto record = [&](size_t event) {
    return CudaStatus(cudaEventRecord(events_[event], nullptr), "cudaEventRecord");
  };
  MT_RETURN_IF_ERROR(record(0));
  for (size_t i = 0; i < candidates.size(); ++i) {
    MT_RETURN_IF_ERROR(RunTimes(operands, candidates[i].dropped ? 0 : runs, candidates[i].plan));
    MT_RETURN_IF_ERROR(record(i + 1));
  }
  MT_RETURN_IF_ERROR(
      CudaStatus(cudaEventSynchronize(events_[candidates.size()]), "timing of matrix products"));
  double total_seconds = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    float milliseconds = 0;
    MT_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]),
                                  "cudaEventElapsedTime"));
    total_seconds += milliseconds * 1e-3;
    if (!candidates[i].dropped) {
      candidates[i].seconds.push_back(milliseconds * 1e-3 / runs);
    }
  }
  return total_seconds;
}

absl::StatusOr<int> MatmulTimer::WarmUp(const MatmulOperands& operands, double seconds,
                                        std::vector<Candidate>& candidates) {
  constexpr int kMostRuns = 1000;
  // The first run of an algorithm also loads its code.
  MT_RETURN_IF_ERROR(Round(operands, 1, candidates).status());
  MT_RETURN_IF_ERROR(Round(operands, 1, candidates).status());
  const double runs = std::round(kTurnSeconds / std::max(candidates.front().seconds.back(), 1e-7));
  const int turn = static_cast<int>(std::clamp<double>(runs, 1, kMostRuns));
  for (double warm_seconds = 0; warm_seconds < seconds;) {
    MT_ASSIGN_OR_RETURN(const double round_seconds, Round(operands, turn, candidates));
    warm_seconds += std::max(round_seconds, 1e-4);
  }
  for (Candidate& candidate : candidates) {
    candidate.seconds.clear();
  }
  return turn;
}

}  // namespace megatrain
