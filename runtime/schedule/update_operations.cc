#include "runtime/schedule/update_operations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

class Updates {
 public:
  Updates(const ScheduleShape& shape, std::vector<Operation>& operations)
      : shape_(shape),
        unit_slots_(shape),
        operations_(operations),
        norm_(operations.size() - 1),
        stores_(shape.staging_slot_count, -1) {}

  void Append() {
    for (int unit = 0; unit < shape_.unit_count(); ++unit) {
      if (shape_.passes_over_bus(unit)) {
        UpdateOverBus(unit);
      } else {
        UpdateAtOnce(unit);
      }
    }
  }

 private:
  void UpdateAtOnce(int unit) {
    Operation update = {
        .kind = OperationKind::kUpdate, .stream = StreamKind::kOptimizer, .unit = unit};
    if (shape_.on_device(unit)) {
      update.kind = OperationKind::kUpdateOnDevice;
      update.stream = StreamKind::kDeviceUpdate;
      update.weight_slot = unit_slots_.OwnWeightSlot(unit);
      update.gradient_slot = unit_slots_.GradientSlot(unit);
      if (!std::exchange(device_waited_, true)) {
        WaitForNorm(update);
      }
    }
    update.records.push_back({EventKind::kUnitUpdated, unit});
    operations_.push_back(std::move(update));
  }

  // Chunk after chunk through the ring of staging slots. The last one's way back ends the update.
  void UpdateOverBus(int unit) {
    for (int chunk = 0; chunk < shape_.state_chunks[unit]; ++chunk) {
      const int slot = passed_chunks_ % shape_.staging_slot_count;
      Operation load = OnChunk(OperationKind::kLoadState, StreamKind::kStateUp, unit, chunk, slot);
      if (passed_chunks_++ == 0) {
        WaitForNorm(load);
      }
      if (stores_[slot] >= 0) {
        operations_[stores_[slot]].records.push_back({EventKind::kStagingFree, slot});
        load.waits.push_back({EventKind::kStagingFree, slot});
      }
      load.records.push_back({EventKind::kStateReady, slot});
      operations_.push_back(std::move(load));

      Operation update =
          OnChunk(OperationKind::kUpdateChunk, StreamKind::kStateUpdate, unit, chunk, slot);
      if (shape_.on_device(unit)) {
        update.weight_slot = unit_slots_.OwnWeightSlot(unit);
        update.gradient_slot = unit_slots_.GradientSlot(unit);
      }
      update.waits.push_back({EventKind::kStateReady, slot});
      update.records.push_back({EventKind::kChunkUpdated, slot});
      operations_.push_back(std::move(update));

      Operation store =
          OnChunk(OperationKind::kStoreState, StreamKind::kStateDown, unit, chunk, slot);
      store.waits.push_back({EventKind::kChunkUpdated, slot});
      stores_[slot] = static_cast<int>(operations_.size());
      operations_.push_back(std::move(store));
    }
    operations_.back().records.push_back({EventKind::kUnitUpdated, unit});
  }

  static Operation OnChunk(OperationKind kind, StreamKind stream, int unit, int chunk, int slot) {
    return {.kind = kind, .stream = stream, .unit = unit, .chunk = chunk, .staging_slot = slot};
  }

  void WaitForNorm(Operation& operation) {
    if (!std::exchange(norm_recorded_, true)) {
      operations_[norm_].records.push_back({EventKind::kNormKnown, 0});
    }
    operation.waits.push_back({EventKind::kNormKnown, 0});
  }

  const ScheduleShape& shape_;
  const UnitSlots unit_slots_;
  std::vector<Operation>& operations_;
  const size_t norm_;           // index of kNorm
  std::vector<int> stores_;     // by staging slot: its last kStoreState's index, or -1
  bool norm_recorded_ = false;  // as known, because somebody waits
  bool device_waited_ = false;  // the first kUpdateOnDevice, for the norm
  int passed_chunks_ = 0;
};

}  // namespace

absl::Status CheckUpdates(const ScheduleShape& shape) {
  const auto named = static_cast<int>(shape.updates.size());
  if (named != 0 && named != shape.unit_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("updates are placed for ", named, " units of ", shape.unit_count()));
  }
  if (std::none_of(shape.updates.begin(), shape.updates.end(), PassesOverBus)) {
    return absl::OkStatus();
  }
  bool passes = shape.staging_slot_count >= 1 &&
                static_cast<int>(shape.state_chunks.size()) == shape.unit_count();
  for (int unit = 0; passes && unit < shape.unit_count(); ++unit) {
    passes = !shape.passes_over_bus(unit) || shape.state_chunks[unit] >= 1;
  }
  return passes
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   "updates over the bus need a staging slot, and chunks for every unit's state");
}

void AppendUpdates(const ScheduleShape& shape, std::vector<Operation>& operations) {
  Updates(shape, operations).Append();
}

}  // namespace megatrain
