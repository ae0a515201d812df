#include "runtime/trainer/train_job.h"

namespace megatrain {

std::string_view TrainPhaseName(TrainPhase phase) {
  switch (phase) {
    case TrainPhase::kPreparingMemory:
      return "preparing memory";
    case TrainPhase::kLoading:
      return "loading";
    case TrainPhase::kPinning:
      return "pinning memory";
    case TrainPhase::kTraining:
      return "training";
    case TrainPhase::kSaving:
      return "saving";
    case TrainPhase::kHolding:
      return "holding";
    case TrainPhase::kEvaluating:
      return "evaluating";
    case TrainPhase::kExporting:
      return "exporting";
  }
  return "unknown";
}

}  // namespace megatrain
