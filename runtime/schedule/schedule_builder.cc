#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/schedule/schedule.h"
#include "runtime/schedule/update_operations.h"

namespace megatrain {
namespace {

// Emits operations in issue order and remembers what every slot holds. An event is recorded only
// where something waits for it, or where a slot's content ends.
class Builder {
 public:
  explicit Builder(const ScheduleShape& shape)
      : shape_(shape),
        unit_slots_(shape),
        slot_of_(shape.unit_count(), -1),
        weight_slots_(shape.used_weight_slot_count()),
        gradient_slots_(shape.used_gradient_slot_count()),
        stash_slots_(shape.stash_slot_count),
        micro_batches_(shape.micro_batch_count),
        loaded_(shape.unit_count(), false),
        gradient_bound_(shape.unit_count(), false) {
    for (int unit = 0; unit < shape.unit_count(); ++unit) {
      if (shape.on_device(unit)) {
        slot_of_[unit] = unit_slots_.OwnWeightSlot(unit);
        weight_slots_[slot_of_[unit]] = {.unit = unit, .is_permanent = true};
      }
    }
  }

  Schedule Build() && {
    const bool layer_major = shape_.order == MicroBatchOrder::kLayerMajor;
    const int pass_size = layer_major ? shape_.micro_batch_count : 1;
    for (int first = 0; first < shape_.micro_batch_count; first += pass_size) {
      const Pass pass = {first, first + pass_size, first + pass_size == shape_.micro_batch_count};
      Forward(pass);
      if (!shape_.forward_only) {
        Backward(pass);
      }
    }
    for (int slot = 0; slot < static_cast<int>(weight_slots_.size()); ++slot) {
      FreeWeightSlot(slot);
    }
    TakeResults();
    if (!shape_.forward_only) {
      AppendUpdates(shape_, operations_);
    }
    return {shape_, std::move(operations_)};
  }

 private:
  // Micro-batches [first, end) go through forward and backward together.
  struct Pass {
    int first;
    int end;
    bool is_last;
  };

  struct WeightSlot {
    int unit = -1;              // whose weights it holds
    int last_reader = -1;       // index of an operation; of the last reader ever when it is free
    bool waited = false;        // a reader has waited for the load, or for the last update
    bool is_permanent = false;  // its unit stays on the device
  };

  struct GradientSlot {
    int download = -1;  // index of the operation that copied its last unit's gradient out
  };

  struct StashSlot {
    bool used = false;  // in this step, by another stream than the one that fills it next
  };

  // What is on its way to the host.
  struct MicroBatchState {
    int last_stash = -1;  // index of the latest such operation whose end nothing waited for yet
    std::array<bool, 2> boundary_leaves = {};  // by place of the rolling ones: is read by a copy
  };

  // One layer's share of one micro-batch that comes back.
  struct Fetch {
    int unit;
    int micro_batch;
  };

  void Forward(const Pass& pass) {
    for (int unit = 0; unit < shape_.unit_count(); ++unit) {
      for (int m = pass.first; m < pass.end; ++m) {
        if (unit == shape_.head_unit()) {
          EmitHead(m);
        } else {
          EmitForward(unit, m);
        }
      }
    }
  }

  void EmitForward(int unit, int micro_batch) {
    const auto kind = unit == 0 ? OperationKind::kEmbedForward : OperationKind::kLayerForward;
    const bool stashes = shape_.stashes(unit, micro_batch) && !shape_.forward_only;
    Operation operation = Compute(kind, unit, micro_batch);
    BindWeights(operation);
    if (shape_.rolls(unit)) {
      AwaitBoundary(operation, shape_.rolling_index(unit));
    }
    if (stashes) {
      operation.records.push_back({EventKind::kActivationsComputed, operation.activation_slot});
    }
    if (stashes && shape_.stashes_kept(unit, micro_batch)) {
      operation.stash_slot = TakeStashSlot();
      if (stash_slots_[operation.stash_slot].used) {
        operation.waits.push_back({EventKind::kStashFree, operation.stash_slot});
      }
    }
    const int stash_slot = operation.stash_slot;
    Emit(std::move(operation));
    if (stashes) {
      EmitStash(unit, micro_batch, stash_slot);
    }
  }

  // Before `operation` writes to the place: that what lies there has left.
  void AwaitBoundary(Operation& operation, int place) {
    const int slot = operation.activation_slot;
    if (std::exchange(micro_batches_[slot].boundary_leaves[place], false)) {
      operation.waits.push_back({EventKind::kBoundaryFree, RollingBoundary(slot, place)});
    }
  }

  void EmitStash(int unit, int micro_batch, int stash_slot) {
    Operation stash = {.kind = OperationKind::kStashActivations,
                       .stream = StreamKind::kDeviceToHost,
                       .unit = unit,
                       .micro_batch = micro_batch,
                       .activation_slot = micro_batch,
                       .stash_slot = stash_slot};
    stash.waits.push_back({EventKind::kActivationsComputed, micro_batch});
    if (shape_.stashes_boundary(unit)) {
      const int place = shape_.rolling_index(unit - 1);
      stash.records.push_back({EventKind::kBoundaryFree, RollingBoundary(micro_batch, place)});
      micro_batches_[micro_batch].boundary_leaves[place] = true;
    }
    if (stash_slot >= 0) {
      stash.records.push_back({EventKind::kStashFree, stash_slot});
      stash_slots_[stash_slot].used = true;
    }
    micro_batches_[micro_batch].last_stash = NextIndex();
    Emit(std::move(stash));
  }

  // They go round; whoever takes one waits until it is free.
  int TakeStashSlot() { return next_stash_slot_++ % shape_.stash_slot_count; }

  void EmitHead(int micro_batch) {
    const auto kind = shape_.forward_only ? OperationKind::kHeadLoss : OperationKind::kHead;
    Operation operation = Compute(kind, shape_.head_unit(), micro_batch);
    BindWeights(operation);
    if (shape_.tied) {
      weight_slots_[kEmbeddingSlot].last_reader = NextIndex();
    }
    if (!shape_.forward_only) {
      AwaitBoundary(operation, /*place=*/1);  // it writes the hidden gradient
      BindGradients(operation);
    }
    Emit(std::move(operation));
  }

  void Backward(const Pass& pass) {
    if (pass.is_last) {
      Finalize(shape_.head_unit());
    }
    ListFetches(pass);
    next_bound_slot_ = next_stash_slot_;
    EmitFetches();
    for (int unit = shape_.layer_count; unit >= 0; --unit) {
      for (int m = pass.first; m < pass.end; ++m) {
        const auto kind = unit == 0 ? OperationKind::kEmbedBackward : OperationKind::kLayerBackward;
        Operation operation = Compute(kind, unit, m);
        if (unit > 0) {
          BindWeights(operation);
        }
        if (shape_.stashes(unit, m)) {
          BindStash(operation);
        }
        BindGradients(operation);
        Emit(std::move(operation));
        if (m == pass.first) {
          PrefetchWeights(unit);
        }
        EmitFetches();
      }
      if (pass.is_last) {
        Finalize(unit);
      }
    }
  }

  // In the order in which backward needs them.
  void ListFetches(const Pass& pass) {
    for (int unit = shape_.layer_count; unit > 0; --unit) {
      for (int m = pass.first; m < pass.end; ++m) {
        if (shape_.stashes(unit, m)) {
          fetches_.push_back({unit, m});
        }
      }
    }
  }

  // As many as there are slots for. The h2d stream keeps its order, so each is emitted where its
  // slot's last reader is known: what the stream does next never waits for what compute does last.
  void EmitFetches() {
    while (next_fetch_ < fetches_.size() && fetched_count_ < shape_.stash_slot_count) {
      EmitFetch(fetches_[next_fetch_++]);
      ++fetched_count_;
    }
  }

  void EmitFetch(const Fetch& fetch) {
    const int slot = TakeStashSlot();
    Operation operation = {.kind = OperationKind::kFetchActivations,
                           .stream = StreamKind::kHostToDevice,
                           .unit = fetch.unit,
                           .micro_batch = fetch.micro_batch,
                           .activation_slot = fetch.micro_batch,
                           .stash_slot = slot};
    // Later ones of the micro-batch went to the host earlier.
    const int stash = std::exchange(micro_batches_[fetch.micro_batch].last_stash, -1);
    if (stash >= 0) {
      operations_[stash].records.push_back({EventKind::kActivationsOnHost, fetch.micro_batch});
      operation.waits.push_back({EventKind::kActivationsOnHost, fetch.micro_batch});
    }
    if (stash_slots_[slot].used) {
      operation.waits.push_back({EventKind::kStashFree, slot});
    }
    operation.records.push_back({EventKind::kActivationsFetched, slot});
    Emit(std::move(operation));
  }

  // Gives `operation` the slot in which what it needs comes back, and the next one after it.
  void BindStash(Operation& operation) {
    const int slot = next_bound_slot_++ % shape_.stash_slot_count;
    operation.stash_slot = slot;
    operation.waits.push_back({EventKind::kActivationsFetched, slot});
    operation.records.push_back({EventKind::kStashFree, slot});
    stash_slots_[slot].used = true;
    --fetched_count_;
  }

  // Where fetches share the h2d stream: loads the weights of the next layer down that has none as
  // soon as a slot is free for them, lest they queue behind fetches for all of this unit.
  void PrefetchWeights(int unit) {
    int next = unit - 1;
    while (next > 0 && slot_of_[next] >= 0) {
      --next;
    }
    if (fetches_.empty() || next <= 0) {
      return;
    }
    if (const int slot = OldestSharedSlot(/*above=*/unit); slot >= 0) {
      EmitLoad(next, slot);
    }
  }

  // The gradient of `unit` is complete: rounds it, and copies it to the host if it waits there. A
  // slot whose gradient does not leave is read by compute alone, which clears it next.
  void Finalize(int unit) {
    const int slot = unit_slots_.GradientSlot(unit);
    Emit({.kind = OperationKind::kFinalizeGradients,
          .stream = StreamKind::kCompute,
          .unit = unit,
          .gradient_slot = slot});
    if (!shape_.gradient_crosses(unit)) {
      gradient_slots_[slot].download = -1;
      return;
    }
    operations_.back().records.push_back({EventKind::kGradientReady, slot});
    Operation download = {.kind = OperationKind::kDownloadGradients,
                          .stream = StreamKind::kDeviceToHost,
                          .unit = unit,
                          .gradient_slot = slot};
    download.waits.push_back({EventKind::kGradientReady, slot});
    gradient_slots_[slot].download = NextIndex();
    Emit(std::move(download));
  }

  // The d2h stream keeps its order: when results are on the host, so are the gradients.
  void TakeResults() {
    operations_[last_compute_].records.push_back({EventKind::kResultsReady, 0});
    Operation download = {.kind = OperationKind::kDownloadResults,
                          .stream = StreamKind::kDeviceToHost};
    download.waits.push_back({EventKind::kResultsReady, 0});
    download.waits.push_back({EventKind::kResultsTaken, 0});
    download.records.push_back({EventKind::kResultsOnHost, 0});
    download.records.push_back({EventKind::kResultsFree, 0});
    Emit(std::move(download));

    Operation norm = {.kind = OperationKind::kNorm, .stream = StreamKind::kOptimizer};
    norm.waits.push_back({EventKind::kResultsOnHost, 0});
    norm.records.push_back({EventKind::kResultsTaken, 0});
    norm.records.push_back({EventKind::kResult, 0});
    Emit(std::move(norm));
  }

  // Gives `operation` the slot that holds its unit's weights; loads them when none does.
  void BindWeights(Operation& operation) {
    int slot = slot_of_[operation.unit];
    if (slot < 0) {
      slot = ChooseWeightSlot(operation.unit);
      EmitLoad(operation.unit, slot);
    }
    if (!std::exchange(weight_slots_[slot].waited, true)) {
      operation.waits.push_back(weight_slots_[slot].is_permanent
                                    ? EventKey{EventKind::kUnitUpdated, operation.unit}
                                    : EventKey{EventKind::kWeightsReady, slot});
    }
    operation.weight_slot = slot;
    weight_slots_[slot].last_reader = NextIndex();
  }

  // The least recently read: it is free first, and where the pass turns round it is the one that
  // is needed last.
  int ChooseWeightSlot(int unit) const {
    const int own = unit_slots_.OwnWeightSlot(unit);
    return own >= 0 ? own : OldestSharedSlot(/*above=*/0);
  }

  // Of the slots that layers share and that hold no unit up to `above`, or -1.
  int OldestSharedSlot(int above) const {
    const int count = std::min(shape_.weight_slot_count, shape_.streamed_layer_count());
    int oldest = -1;
    for (int slot = kFirstLayerSlot; slot < kFirstLayerSlot + count; ++slot) {
      const WeightSlot& state = weight_slots_[slot];
      if ((state.unit < 0 || state.unit > above) &&
          (oldest < 0 || state.last_reader < weight_slots_[oldest].last_reader)) {
        oldest = slot;
      }
    }
    return oldest;
  }

  void EmitLoad(int unit, int slot) {
    FreeWeightSlot(slot);
    Operation load = {.kind = OperationKind::kLoadWeights,
                      .stream = StreamKind::kHostToDevice,
                      .unit = unit,
                      .weight_slot = slot};
    if (!loaded_[unit]) {
      load.waits.push_back({EventKind::kUnitUpdated, unit});
      loaded_[unit] = true;
    }
    load.waits.push_back({EventKind::kSlotFree, slot});
    load.records.push_back({EventKind::kWeightsReady, slot});
    weight_slots_[slot].unit = unit;
    slot_of_[unit] = slot;
    weight_slots_[slot].waited = false;
    Emit(std::move(load));
  }

  void FreeWeightSlot(int slot) {
    WeightSlot& state = weight_slots_[slot];
    if (state.unit >= 0 && !state.is_permanent) {
      operations_[state.last_reader].records.push_back({EventKind::kSlotFree, slot});
      slot_of_[std::exchange(state.unit, -1)] = -1;
    }
  }

  // Gives `operation` its unit's gradient slot, cleared when the unit meets it first.
  void BindGradients(Operation& operation) {
    const int slot = unit_slots_.GradientSlot(operation.unit);
    if (!gradient_bound_[operation.unit]) {
      gradient_bound_[operation.unit] = true;
      operation.clears_gradient = true;
      const int download = gradient_slots_[slot].download;
      if (download >= 0) {
        operations_[download].records.push_back({EventKind::kSlabFree, slot});
        operation.waits.push_back({EventKind::kSlabFree, slot});
      }
    }
    operation.gradient_slot = slot;
  }

  Operation Compute(OperationKind kind, int unit, int micro_batch) const {
    const bool layer_major = shape_.order == MicroBatchOrder::kLayerMajor;
    return {.kind = kind,
            .stream = StreamKind::kCompute,
            .unit = unit,
            .micro_batch = micro_batch,
            .activation_slot = layer_major || micro_batch < 0 ? micro_batch : 0};
  }

  // The index that the operation under construction will have, once its load is emitted.
  int NextIndex() const { return static_cast<int>(operations_.size()); }
  void Emit(Operation operation) {
    if (operation.stream == StreamKind::kCompute) {
      if (last_compute_ < 0) {
        operation.waits.push_back({EventKind::kResultsFree, 0});
      }
      last_compute_ = NextIndex();
    }
    operations_.push_back(std::move(operation));
  }

  const ScheduleShape shape_;
  const UnitSlots unit_slots_;
  std::vector<Operation> operations_;
  std::vector<int> slot_of_;  // by unit: the weight slot that holds its weights, or -1
  std::vector<WeightSlot> weight_slots_;
  std::vector<GradientSlot> gradient_slots_;
  std::vector<StashSlot> stash_slots_;
  std::vector<MicroBatchState> micro_batches_;  // by micro-batch; of a step that stashes
  std::vector<Fetch> fetches_;                  // of the step, in the order of their use
  size_t next_fetch_ = 0;                       // that is not emitted yet
  int fetched_count_ = 0;                       // emitted, and what uses them not
  int next_stash_slot_ = 0;                     // counts on; see TakeStashSlot
  int next_bound_slot_ = 0;                     // the same for what uses a fetch
  std::vector<bool> loaded_;                    // by unit: in this step
  std::vector<bool> gradient_bound_;  // by unit: it has met its gradient slot in this step
  int last_compute_ = -1;             // index of the compute stream's latest operation
};

absl::Status CheckStash(const ScheduleShape& shape) {
  for (const std::vector<bool>* units : {&shape.boundary_on_host, &shape.kept_on_host}) {
    if (!units->empty() && static_cast<int>(units->size()) != shape.unit_count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("boundary_on_host and kept_on_host name ", shape.boundary_on_host.size(),
                       " and ", shape.kept_on_host.size(), " units of ", shape.unit_count()));
    }
  }
  const auto places = static_cast<int>(shape.kept_places.size());
  if (places != 0 && places < shape.micro_batch_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("kept_places names ", places, " micro-batches of ", shape.micro_batch_count));
  }
  bool stashes = false;
  for (int unit = 1; unit <= shape.layer_count; ++unit) {
    stashes = stashes || shape.stashes_boundary(unit) ||
              (!shape.kept_on_host.empty() && shape.kept_on_host[unit]);
  }
  if (stashes && (shape.order != MicroBatchOrder::kLayerMajor || shape.stash_slot_count < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "activations go to the host in layer-major order alone, through at least one slot; slots ",
        shape.stash_slot_count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schedule> BuildSchedule(const ScheduleShape& shape) {
  if (shape.layer_count < 1 || shape.micro_batch_count < 1 || shape.weight_slot_count < 1 ||
      shape.gradient_slot_count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a schedule needs at least one of each: layers ", shape.layer_count,
                     ", micro-batches ", shape.micro_batch_count, ", weight slots ",
                     shape.weight_slot_count, ", gradient slots ", shape.gradient_slot_count));
  }
  MT_RETURN_IF_ERROR(CheckUpdates(shape));
  MT_RETURN_IF_ERROR(CheckStash(shape));
  return Builder(shape).Build();
}

}  // namespace megatrain
