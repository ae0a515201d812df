#include "runtime/kernels/matmul.h"

#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/matmul_plan.h"

namespace megatrain {

class MatrixMultiplier::State {
 public:
  State(cublasLtHandle_t handle, MatmulChoices choices)
      : handle_(handle), choices_(std::move(choices)) {}
  ~State() { cublasLtDestroy(handle_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  absl::Status Run(const MatmulCall& call, const MatmulContext& context) {
    MT_ASSIGN_OR_RETURN(const MatmulPlan plan, PlanOf(call.problem));
    return RunMatmul(handle_, plan, call.operands, context.scratch, context.stream);
  }

 private:
  absl::StatusOr<MatmulPlan> PlanOf(const MatmulProblem& problem) {
    MutexLock lock(&mutex_);
    return KnownPlan(problem);
  }

  absl::StatusOr<MatmulPlan> KnownPlan(const MatmulProblem& problem)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (const auto known = plans_.find(problem); known != plans_.end()) {
      return known->second;
    }
    MT_ASSIGN_OR_RETURN(const MatmulPlan plan, MakePlan(problem));
    if (plans_.size() >= kMostPlans) {
      plans_.clear();
    }
    plans_.emplace(problem, plan);
    return plan;
  }

  absl::StatusOr<MatmulPlan> MakePlan(const MatmulProblem& problem)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const MatmulChoices::value_type* choice = FindMatmulChoice(choices_, problem);
    if (choice == nullptr || choice->first == problem) {
      return PlanAt(problem, choice == nullptr ? 0 : choice->second);
    }
    MT_ASSIGN_OR_RETURN(const MatmulPlan near, KnownPlan(choice->first));
    absl::StatusOr<MatmulPlan> plan = MatmulPlanWith(handle_, near.algorithm, problem);
    return absl::IsUnimplemented(plan.status()) ? PlanAt(problem, 0) : plan;
  }

  // The plan at a place in the heuristic's list, the first where the list is shorter.
  absl::StatusOr<MatmulPlan> PlanAt(const MatmulProblem& problem, int place) const {
    MT_ASSIGN_OR_RETURN(const std::vector<MatmulPlan> found,
                        FindMatmulPlans(handle_, problem, place == 0 ? 1 : kMatmulCandidates));
    return place < std::ssize(found) ? found[place] : found.front();
  }

  // Micro-batches have many lengths: some kilobytes of plan each must not add up.
  static constexpr size_t kMostPlans = 1000;

  const cublasLtHandle_t handle_;
  const MatmulChoices choices_;
  Mutex mutex_;
  std::map<MatmulProblem, MatmulPlan> plans_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<MatrixMultiplier>> MatrixMultiplier::Create(MatmulChoices choices) {
  cublasLtHandle_t handle = nullptr;
  MT_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&handle), "cublasLtCreate"));
  return std::unique_ptr<MatrixMultiplier>(
      new MatrixMultiplier(std::make_unique<State>(handle, std::move(choices))));
}

MatrixMultiplier::MatrixMultiplier(std::unique_ptr<State> state) : state_(std::move(state)) {}
MatrixMultiplier::~MatrixMultiplier() = default;

absl::Status MatrixMultiplier::Forward(const MatrixView& x, const MatrixView& weight,
                                       const MatrixView& y, const ForwardOptions& options,
                                       ComputeDtype dtype, const MatmulContext& context) {
  MT_ASSIGN_OR_RETURN(const MatmulCall call, ForwardCall(x, weight, y, options, dtype));
  return state_->Run(call, context);
}

absl::Status MatrixMultiplier::BackwardInput(const MatrixView& dy, const MatrixView& weight,
                                             const MatrixView& dx, bool accumulate,
                                             ComputeDtype dtype, const MatmulContext& context) {
  MT_ASSIGN_OR_RETURN(const MatmulCall call, BackwardInputCall(dy, weight, dx, accumulate, dtype));
  return state_->Run(call, context);
}

absl::Status MatrixMultiplier::BackwardWeight(const MatrixView& dy, const MatrixView& x,
                                              float* weight_gradient, bool accumulate,
                                              ComputeDtype dtype, const MatmulContext& context) {
  MT_ASSIGN_OR_RETURN(const MatmulCall call,
                      BackwardWeightCall(dy, x, weight_gradient, accumulate, dtype));
  return state_->Run(call, context);
}

}  // namespace megatrain
