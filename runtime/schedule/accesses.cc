#include "runtime/schedule/accesses.h"

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// Collects the accesses of one operation.
class Collector {
 public:
  Collector(const ScheduleShape& shape, const Operation& operation)
      : shape_(shape), operation_(operation) {}

  std::vector<Access> Collect() && {
    switch (operation_.kind) {
      case OperationKind::kLoadWeights:
        Read(ResourceKind::kHostWeights, operation_.unit);
        Write(ResourceKind::kWeightSlot, operation_.weight_slot);
        break;
      case OperationKind::kEmbedForward:
        ReadWeights();
        WriteBoundary(operation_.unit);
        break;
      case OperationKind::kLayerForward:
        ReadWeights();
        ReadBoundary(operation_.unit - 1);
        WriteBoundary(operation_.unit);
        break;
      case OperationKind::kHead:
      case OperationKind::kHeadLoss:
        Head();
        break;
      case OperationKind::kLayerBackward:
        ReadWeights();
        ReadBoundary(operation_.unit - 1);
        Write(ResourceKind::kHiddenGradient, operation_.activation_slot);
        Write(ResourceKind::kGradientSlot, operation_.gradient_slot);
        break;
      case OperationKind::kEmbedBackward:
        Read(ResourceKind::kHiddenGradient, operation_.activation_slot);
        Write(ResourceKind::kGradientSlot, operation_.gradient_slot);
        break;
      default:
        Optimize();
    }
    return std::move(accesses_);
  }

 private:
  void Head() {
    ReadWeights();
    if (shape_.tied) {
      Read(ResourceKind::kWeightSlot, kEmbeddingSlot);
    }
    ReadBoundary(operation_.unit - 1);
    Write(ResourceKind::kLoss, operation_.micro_batch);
    if (operation_.kind == OperationKind::kHead) {
      Write(ResourceKind::kHiddenGradient, operation_.activation_slot);
      Write(ResourceKind::kGradientSlot, operation_.gradient_slot);
    }
  }

  void Optimize() {
    const int unit = operation_.unit;
    if (operation_.kind == OperationKind::kFinalizeGradients) {
      Write(ResourceKind::kGradientSlot, operation_.gradient_slot);
      Write(ResourceKind::kSquares, unit);
      if (shape_.tied && unit == 0) {
        Read(ResourceKind::kGradientSlot, kHeadSlot);
      }
    } else if (operation_.kind == OperationKind::kDownloadGradients) {
      Read(ResourceKind::kGradientSlot, operation_.gradient_slot);
      Read(ResourceKind::kSquares, unit);
      Write(ResourceKind::kHostGradient, unit);
      Write(ResourceKind::kHostSquares, unit);
    } else if (operation_.kind == OperationKind::kNorm) {
      for (int u = 0; u < shape_.unit_count(); ++u) {
        Read(ResourceKind::kHostSquares, u);
      }
      for (int m = 0; m < shape_.micro_batch_count; ++m) {
        Read(ResourceKind::kLoss, m);
      }
      Write(ResourceKind::kClip, 0);
    } else if (operation_.kind == OperationKind::kUpdate) {
      Read(ResourceKind::kClip, 0);
      Read(ResourceKind::kHostGradient, unit);
      Write(ResourceKind::kHostWeights, unit);
      Write(ResourceKind::kHostMoments, unit);
    }
  }

  void ReadWeights() { Read(ResourceKind::kWeightSlot, operation_.weight_slot); }
  void ReadBoundary(int unit) {
    Read(ResourceKind::kBoundary, BoundaryIndex(shape_, unit, operation_.activation_slot));
  }
  void WriteBoundary(int unit) {
    Write(ResourceKind::kBoundary, BoundaryIndex(shape_, unit, operation_.activation_slot));
  }
  void Read(ResourceKind kind, int index) { accesses_.push_back({{kind, index}, false}); }
  void Write(ResourceKind kind, int index) { accesses_.push_back({{kind, index}, true}); }

  const ScheduleShape& shape_;
  const Operation& operation_;
  std::vector<Access> accesses_;
};

const char* KindName(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::kWeightSlot:
      return "weight slot";
    case ResourceKind::kGradientSlot:
      return "gradient slot";
    case ResourceKind::kSquares:
      return "device sums of squares of unit";
    case ResourceKind::kBoundary:
      return "boundary";
    case ResourceKind::kHiddenGradient:
      return "hidden gradient";
    case ResourceKind::kHostWeights:
      return "host weights of unit";
    case ResourceKind::kHostMoments:
      return "host moments of unit";
    case ResourceKind::kHostGradient:
      return "host gradient of unit";
    case ResourceKind::kHostSquares:
      return "host sums of squares of unit";
    case ResourceKind::kLoss:
      return "loss of micro-batch";
    case ResourceKind::kClip:
      return "clip coefficient";
  }
  return "unknown";
}

}  // namespace

std::vector<Access> AccessesOf(const ScheduleShape& shape, const Operation& operation) {
  return Collector(shape, operation).Collect();
}

std::string Describe(const Resource& resource) {
  return absl::StrCat(KindName(resource.kind), " ", resource.index);
}

}  // namespace megatrain
