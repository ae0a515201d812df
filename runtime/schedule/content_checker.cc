#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/schedule/accesses.h"
#include "runtime/schedule/schedule_checker.h"

namespace megatrain {
namespace {

// Weights in a slot: whose, and after how many updates.
struct Weights {
  int unit = -1;
  int version = 0;
};

// A unit's gradient within one step.
struct Gradient {
  int slot = -1;
  int summed = 0;  // micro-batches
  bool final = false;
  bool on_host = false;
  bool updated = false;
  int chunks_loaded = 0;
  int chunks_stored = 0;
};

// A part of a unit's state in a staging slot.
struct Chunk {
  int unit = -1;
  int index = -1;
  bool updated = false;
};

// Activations: a unit's, and a micro-batch's.
using Item = std::pair<int, int>;

Item ItemOf(const Operation& operation) { return {operation.unit, operation.micro_batch}; }

// Interprets the operations in issue order, as one thread would run them.
class ContentChecker {
 public:
  absl::Status Check(std::span<const Schedule> steps) {
    for (step_ = 0; step_ < static_cast<int>(steps.size()); ++step_) {
      shape_ = steps[step_].shape;
      unit_slots_.emplace(shape_);
      MT_RETURN_IF_ERROR(CheckStep(steps[step_]));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckStep(const Schedule& schedule) {
    versions_.resize(shape_.unit_count(), 0);
    gradients_.assign(shape_.unit_count(), {});
    gradient_owner_.clear();
    boundaries_.clear();
    hidden_gradients_.clear();
    stash_slots_.clear();
    host_activations_.clear();
    losses_ = 0;
    results_on_host_ = false;
    norm_known_ = false;
    staging_.clear();
    for (int unit = 0; unit < shape_.unit_count(); ++unit) {
      if (shape_.on_device(unit)) {
        slots_.try_emplace(unit_slots_->OwnWeightSlot(unit), Weights{unit, versions_[unit]});
      }
    }
    for (const Operation& operation : schedule.operations) {
      MT_RETURN_IF_ERROR(Run(operation));
      for (const EventKey& event : operation.records) {
        Free(event);
      }
    }
    return CheckComplete();
  }

  // What the event says is gone.
  void Free(EventKey event) {
    if (event.kind == EventKind::kSlotFree) {
      slots_.erase(event.index);
    } else if (event.kind == EventKind::kStashFree) {
      stash_slots_.erase(event.index);
    } else if (event.kind == EventKind::kBoundaryFree) {
      boundaries_.erase(RollingPlace(shape_, event.index / 2, event.index % 2));
    }
  }

  absl::Status CheckComplete() const {
    if (losses_ != shape_.micro_batch_count) {
      return Error("the step computes the loss of ", losses_, " micro-batches");
    }
    if (!norm_known_) {
      return Error("the step takes no results");
    }
    for (int unit = 0; unit < shape_.unit_count() && !shape_.forward_only; ++unit) {
      if (!gradients_[unit].updated) {
        return Error("the step does not update unit ", unit);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Run(const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::kLoadWeights:
        if (slots_.contains(operation.weight_slot)) {
          return Error(Describe(operation), ": its slot was not freed");
        }
        slots_[operation.weight_slot] = {operation.unit, versions_[operation.unit]};
        return absl::OkStatus();
      case OperationKind::kStashActivations:
        return Stash(operation);
      case OperationKind::kFetchActivations:
        return Fetch(operation);
      case OperationKind::kEmbedForward:
      case OperationKind::kLayerForward:
        return Forward(operation);
      case OperationKind::kHead:
      case OperationKind::kHeadLoss:
        return Head(operation);
      case OperationKind::kLayerBackward:
      case OperationKind::kEmbedBackward:
        return Backward(operation);
      case OperationKind::kFinalizeGradients:
      case OperationKind::kDownloadGradients:
        return Collect(operation);
      case OperationKind::kDownloadResults:
        results_on_host_ = losses_ == shape_.micro_batch_count;
        return absl::OkStatus();
      case OperationKind::kNorm:
        return Norm(operation);
      case OperationKind::kUpdate:
      case OperationKind::kUpdateOnDevice:
        return Update(operation);
      case OperationKind::kLoadState:
        return LoadState(operation);
      case OperationKind::kUpdateChunk:
        return UpdateChunk(operation);
      case OperationKind::kStoreState:
        return StoreState(operation);
    }
    return Error("unknown operation");
  }

  absl::Status Forward(const Operation& operation) {
    MT_RETURN_IF_ERROR(RequireWeights(operation, operation.weight_slot, operation.unit));
    if (operation.unit > 0) {
      MT_RETURN_IF_ERROR(RequireBoundary(operation));
    }
    boundaries_[BoundaryOf(shape_, operation.unit, operation.activation_slot)] = ItemOf(operation);
    if (shape_.rolls(operation.unit) && shape_.rolling_index(operation.unit) == 1) {
      hidden_gradients_.erase(operation.activation_slot);
    }
    const bool stashes_kept = !shape_.forward_only && operation.unit > 0 &&
                              shape_.stashes_kept(operation.unit, operation.micro_batch);
    return stashes_kept ? FillStashSlot(operation) : absl::OkStatus();
  }

  absl::Status FillStashSlot(const Operation& operation) {
    if (stash_slots_.contains(operation.stash_slot)) {
      return Error(Describe(operation), ": its stash slot was not freed");
    }
    stash_slots_[operation.stash_slot] = ItemOf(operation);
    return absl::OkStatus();
  }

  absl::Status Stash(const Operation& operation) {
    if (shape_.stashes_boundary(operation.unit)) {
      MT_RETURN_IF_ERROR(RequireBoundary(operation));
    }
    if (shape_.stashes_kept(operation.unit, operation.micro_batch)) {
      MT_RETURN_IF_ERROR(RequireStashSlot(operation));
    }
    host_activations_.insert(ItemOf(operation));
    return absl::OkStatus();
  }

  absl::Status Fetch(const Operation& operation) {
    if (!host_activations_.contains(ItemOf(operation))) {
      return Error(Describe(operation), ": it is not on the host");
    }
    return FillStashSlot(operation);
  }

  absl::Status Head(const Operation& operation) {
    MT_RETURN_IF_ERROR(RequireWeights(operation, operation.weight_slot, operation.unit));
    if (shape_.tied) {
      MT_RETURN_IF_ERROR(RequireWeights(operation, kEmbeddingSlot, 0));
    }
    MT_RETURN_IF_ERROR(RequireBoundary(operation));
    ++losses_;
    if (operation.kind == OperationKind::kHeadLoss) {
      return absl::OkStatus();
    }
    hidden_gradients_[operation.activation_slot] = ItemOf(operation);
    boundaries_.erase(RollingPlace(shape_, operation.activation_slot, 1));
    return Accumulate(operation);
  }

  absl::Status Backward(const Operation& operation) {
    if (operation.unit > 0) {
      MT_RETURN_IF_ERROR(RequireWeights(operation, operation.weight_slot, operation.unit));
      MT_RETURN_IF_ERROR(RequireInput(operation));
    }
    // That of the input of the unit in it.
    Item& hidden = hidden_gradients_[operation.activation_slot];
    if (hidden != Item{operation.unit + 1, operation.micro_batch}) {
      return Error(Describe(operation), ": the hidden gradient is not that of its output");
    }
    hidden.first = operation.unit;
    return Accumulate(operation);
  }

  absl::Status Accumulate(const Operation& operation) {
    Gradient& gradient = gradients_[operation.unit];
    if (operation.clears_gradient != (gradient.summed == 0)) {
      return Error(Describe(operation), ": clears its gradient slot not exactly at first use");
    }
    if (gradient.summed++ == 0) {
      gradient.slot = operation.gradient_slot;
      gradient_owner_[operation.gradient_slot] = operation.unit;
    }
    return RequireGradientSlot(operation);
  }

  // Finalize and download.
  absl::Status Collect(const Operation& operation) {
    Gradient& gradient = gradients_[operation.unit];
    MT_RETURN_IF_ERROR(RequireGradientSlot(operation));
    if (gradient.summed != shape_.micro_batch_count) {
      return Error(Describe(operation), ": ", gradient.summed, " micro-batches are summed");
    }
    if (operation.kind == OperationKind::kDownloadGradients) {
      if (!gradient.final) {
        return Error(Describe(operation), ": the gradient is not final");
      }
      gradient.on_host = true;
      return absl::OkStatus();
    }
    const bool adds_head = shape_.tied && operation.unit == 0;
    if (adds_head && gradients_[shape_.head_unit()].summed != shape_.micro_batch_count) {
      return Error(Describe(operation), ": the head's part of the table is not complete");
    }
    gradient.final = true;
    return absl::OkStatus();
  }

  absl::Status Norm(const Operation& operation) {
    if (!results_on_host_) {
      return Error(Describe(operation), ": the results are not on the host");
    }
    for (int unit = 0; unit < shape_.unit_count() && !shape_.forward_only; ++unit) {
      const Gradient& gradient = gradients_[unit];
      if (!(shape_.gradient_crosses(unit) ? gradient.on_host : gradient.final)) {
        return Error(Describe(operation), ": the gradient of unit ", unit,
                     " is not where it is updated");
      }
    }
    norm_known_ = true;
    return absl::OkStatus();
  }

  absl::Status Update(const Operation& operation) {
    Gradient& gradient = gradients_[operation.unit];
    if (!norm_known_ || gradient.updated) {
      return Error(Describe(operation), ": before the norm is known, or a second time");
    }
    gradient.updated = true;
    ++versions_[operation.unit];
    if (operation.kind == OperationKind::kUpdateOnDevice) {
      MT_RETURN_IF_ERROR(RequireGradientSlot(operation));
      slots_[operation.weight_slot] = {operation.unit, versions_[operation.unit]};
    }
    return absl::OkStatus();
  }

  // Chunks come in order, each once, to a slot whose last one is back on the host.
  absl::Status LoadState(const Operation& operation) {
    Gradient& gradient = gradients_[operation.unit];
    if (!norm_known_ || operation.chunk != gradient.chunks_loaded++) {
      return Error(Describe(operation), ": before the norm is known, or not in its turn");
    }
    if (!staging_.try_emplace(operation.staging_slot, Chunk{operation.unit, operation.chunk})
             .second) {
      return Error(Describe(operation), ": its staging slot was not freed");
    }
    return absl::OkStatus();
  }

  absl::Status UpdateChunk(const Operation& operation) {
    MT_RETURN_IF_ERROR(RequireChunk(operation, /*updated=*/false));
    staging_[operation.staging_slot].updated = true;
    if (!shape_.on_device(operation.unit)) {
      return absl::OkStatus();
    }
    MT_RETURN_IF_ERROR(RequireGradientSlot(operation));
    return RequireWeights(operation, operation.weight_slot, operation.unit);
  }

  absl::Status StoreState(const Operation& operation) {
    MT_RETURN_IF_ERROR(RequireChunk(operation, /*updated=*/true));
    staging_.erase(operation.staging_slot);
    Gradient& gradient = gradients_[operation.unit];
    if (++gradient.chunks_stored < shape_.state_chunks[operation.unit]) {
      return absl::OkStatus();
    }
    gradient.updated = true;
    ++versions_[operation.unit];
    if (shape_.on_device(operation.unit)) {
      slots_[unit_slots_->OwnWeightSlot(operation.unit)].version = versions_[operation.unit];
    }
    return absl::OkStatus();
  }

  absl::Status RequireChunk(const Operation& operation, bool updated) const {
    const auto found = staging_.find(operation.staging_slot);
    if (found == staging_.end() || found->second.unit != operation.unit ||
        found->second.index != operation.chunk || found->second.updated != updated) {
      return Error(Describe(operation), ": staging slot ", operation.staging_slot,
                   " does not hold its chunk as it should be");
    }
    return absl::OkStatus();
  }

  absl::Status RequireWeights(const Operation& operation, int slot, int unit) const {
    const auto found = slots_.find(slot);
    if (found == slots_.end() || found->second.unit != unit) {
      return Error(Describe(operation), ": weight slot ", slot, " does not hold unit ", unit);
    }
    if (found->second.version != versions_[unit]) {
      return Error(Describe(operation), ": weight slot ", slot, " holds an old version of unit ",
                   unit);
    }
    return absl::OkStatus();
  }

  absl::Status RequireGradientSlot(const Operation& operation) const {
    const auto owner = gradient_owner_.find(operation.gradient_slot);
    if (owner == gradient_owner_.end() || owner->second != operation.unit) {
      return Error(Describe(operation), ": gradient slot ", operation.gradient_slot,
                   " does not hold its unit");
    }
    return absl::OkStatus();
  }

  // What backward needs of forward, on the device or back there.
  absl::Status RequireInput(const Operation& operation) const {
    if (shape_.stashes(operation.unit, operation.micro_batch)) {
      MT_RETURN_IF_ERROR(RequireStashSlot(operation));
    }
    return shape_.stashes_boundary(operation.unit) ? absl::OkStatus() : RequireBoundary(operation);
  }

  absl::Status RequireStashSlot(const Operation& operation) const {
    const auto found = stash_slots_.find(operation.stash_slot);
    if (found == stash_slots_.end() || found->second != ItemOf(operation)) {
      return Error(Describe(operation), ": stash slot ", operation.stash_slot,
                   " does not hold what the layer left");
    }
    return absl::OkStatus();
  }

  // Of the unit below, for this micro-batch.
  absl::Status RequireBoundary(const Operation& operation) const {
    const auto found =
        boundaries_.find(BoundaryOf(shape_, operation.unit - 1, operation.activation_slot));
    if (found == boundaries_.end() ||
        found->second != Item{operation.unit - 1, operation.micro_batch}) {
      return Error(Describe(operation), ": its input is not there");
    }
    return absl::OkStatus();
  }

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::FailedPreconditionError(absl::StrCat("step ", step_, ": ", parts...));
  }

  ScheduleShape shape_;
  std::optional<UnitSlots> unit_slots_;  // of the shape
  int step_ = 0;
  std::map<int, Weights> slots_;  // by weight slot; absent: free
  std::vector<int> versions_;     // by unit
  // Within one step:
  std::vector<Gradient> gradients_;       // by unit
  std::map<int, int> gradient_owner_;     // by gradient slot
  std::map<int, Chunk> staging_;          // by staging slot; absent: free
  std::map<Resource, Item> boundaries_;   // by BoundaryOf: a unit's output
  std::map<int, Item> hidden_gradients_;  // by activation slot: that of a unit's input
  std::map<int, Item> stash_slots_;       // what a layer left, by stash slot; absent: free
  std::set<Item> host_activations_;       // the same
  int losses_ = 0;
  bool results_on_host_ = false;
  bool norm_known_ = false;
};

}  // namespace

absl::Status CheckContents(std::span<const Schedule> steps) {
  return ContentChecker().Check(steps);
}

}  // namespace megatrain
