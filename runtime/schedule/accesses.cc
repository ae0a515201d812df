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
        ReadHostWeights();
        Write(ResourceKind::kWeightSlot, operation_.weight_slot);
        break;
      case OperationKind::kStashActivations:
        Stash();
        break;
      case OperationKind::kFetchActivations:
        Read(ResourceKind::kHostActivations, StashIndex());
        Write(ResourceKind::kStashSlot, operation_.stash_slot);
        break;
      case OperationKind::kEmbedForward:
        ReadWeights();
        WriteBoundary(operation_.unit);
        Write(ResourceKind::kResults, 0);
        break;
      case OperationKind::kLayerForward:
        ReadWeights();
        ReadBoundary(operation_.unit - 1);
        WriteBoundary(operation_.unit);
        if (operation_.stash_slot >= 0) {
          Write(ResourceKind::kStashSlot, operation_.stash_slot);
        }
        Write(ResourceKind::kResults, 0);
        break;
      case OperationKind::kHead:
      case OperationKind::kHeadLoss:
        Head();
        break;
      case OperationKind::kLayerBackward:
        ReadWeights();
        ReadInput();
        Write(ResourceKind::kHiddenGradient, operation_.activation_slot);
        Write(ResourceKind::kGradientSlot, operation_.gradient_slot);
        break;
      case OperationKind::kEmbedBackward:
        Read(ResourceKind::kHiddenGradient, operation_.activation_slot);
        Write(ResourceKind::kGradientSlot, operation_.gradient_slot);
        Write(ResourceKind::kResults, 0);
        break;
      case OperationKind::kLoadState:
      case OperationKind::kUpdateChunk:
      case OperationKind::kStoreState:
        PassChunk();
        break;
      default:
        Optimize();
    }
    return std::move(accesses_);
  }

 private:
  // Takes the boundary away: its layer has read it by then.
  void Stash() {
    if (shape_.stashes_boundary(operation_.unit)) {
      WriteBoundary(operation_.unit - 1);
    }
    if (operation_.stash_slot >= 0) {
      Read(ResourceKind::kStashSlot, operation_.stash_slot);
    }
    Write(ResourceKind::kHostActivations, StashIndex());
  }

  // What backward finds of forward; it may overwrite what the layer kept.
  void ReadInput() {
    if (!shape_.stashes_boundary(operation_.unit)) {
      ReadBoundary(operation_.unit - 1);
    }
    if (shape_.stashes(operation_.unit, operation_.micro_batch)) {
      Write(ResourceKind::kStashSlot, operation_.stash_slot);
    }
  }

  void Head() {
    ReadWeights();
    if (shape_.tied) {
      Read(ResourceKind::kWeightSlot, kEmbeddingSlot);
    }
    ReadBoundary(operation_.unit - 1);
    Write(ResourceKind::kResults, 0);
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
      if (shape_.keeps_gradient(unit)) {
        Write(ResourceKind::kDeviceGradient, unit);
      }
    } else if (operation_.kind == OperationKind::kDownloadGradients) {
      Read(ResourceKind::kGradientSlot, operation_.gradient_slot);
      Write(ResourceKind::kHostGradient, unit);
    } else if (operation_.kind == OperationKind::kDownloadResults) {
      DownloadResults();
    } else if (operation_.kind == OperationKind::kNorm) {
      Read(ResourceKind::kHostResults, 0);
      Write(ResourceKind::kClip, 0);
    } else {
      Update();
    }
  }

  void DownloadResults() {
    Read(ResourceKind::kResults, 0);
    for (int unit = 0; unit < shape_.unit_count() && !shape_.forward_only; ++unit) {
      Read(ResourceKind::kSquares, unit);
    }
    Write(ResourceKind::kHostResults, 0);
  }

  void Update() {
    const int unit = operation_.unit;
    Read(ResourceKind::kClip, 0);
    if (operation_.kind == OperationKind::kUpdateOnDevice) {
      Read(ResourceKind::kGradientSlot, operation_.gradient_slot);
      Write(ResourceKind::kWeightSlot, operation_.weight_slot);
      Write(ResourceKind::kDeviceState, unit);
    } else {
      Read(ResourceKind::kHostGradient, unit);
      Write(ResourceKind::kHostWeights, unit);
      Write(ResourceKind::kHostMoments, unit);
    }
  }

  void ReadHostWeights() {
    if (!shape_.passes_over_bus(operation_.unit)) {
      Read(ResourceKind::kHostWeights, operation_.unit);
      return;
    }
    for (int chunk = 0; chunk < shape_.state_chunks[operation_.unit]; ++chunk) {
      Read(ResourceKind::kHostChunk, ChunkIndex(shape_, operation_.unit, chunk));
    }
  }

  void PassChunk() {
    const int unit = operation_.unit;
    const int host_chunk = ChunkIndex(shape_, unit, operation_.chunk);
    Read(ResourceKind::kClip, 0);
    if (operation_.kind == OperationKind::kStoreState) {
      Read(ResourceKind::kStagingSlot, operation_.staging_slot);
      Write(ResourceKind::kHostChunk, host_chunk);
      return;
    }
    Write(ResourceKind::kStagingSlot, operation_.staging_slot);
    if (operation_.kind == OperationKind::kLoadState) {
      Read(ResourceKind::kHostChunk, host_chunk);
    }
    if (shape_.on_device(unit) && operation_.kind == OperationKind::kUpdateChunk) {
      Read(ResourceKind::kGradientSlot, operation_.gradient_slot);
      Write(ResourceKind::kWeightSlot, operation_.weight_slot);
    } else if (shape_.keeps_gradient(unit) && operation_.kind == OperationKind::kUpdateChunk) {
      Read(ResourceKind::kDeviceGradient, unit);
    } else if (shape_.gradient_crosses(unit) && operation_.kind == OperationKind::kLoadState) {
      Read(ResourceKind::kHostGradient, unit);
    }
  }

  void ReadWeights() { Read(ResourceKind::kWeightSlot, operation_.weight_slot); }
  int StashIndex() const {
    return BoundaryIndex(shape_, operation_.unit, operation_.activation_slot);
  }
  void ReadBoundary(int unit) {
    accesses_.push_back({BoundaryOf(shape_, unit, operation_.activation_slot), false});
  }
  void WriteBoundary(int unit) {
    accesses_.push_back({BoundaryOf(shape_, unit, operation_.activation_slot), true});
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
    case ResourceKind::kStashSlot:
      return "stash slot";
    case ResourceKind::kHostActivations:
      return "host activations";
    case ResourceKind::kHostWeights:
      return "host weights of unit";
    case ResourceKind::kHostMoments:
      return "host moments of unit";
    case ResourceKind::kHostGradient:
      return "host gradient of unit";
    case ResourceKind::kResults:
      return "device results";
    case ResourceKind::kHostResults:
      return "host results";
    case ResourceKind::kClip:
      return "clip coefficient";
    case ResourceKind::kDeviceState:
      return "device state of unit";
    case ResourceKind::kDeviceGradient:
      return "device gradient of unit";
    case ResourceKind::kHostChunk:
      return "host chunk";
    case ResourceKind::kStagingSlot:
      return "staging slot";
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
