#include "runtime/planner/placement_choice.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace megatrain {
namespace {

// Units in the order in which they go to the device.
std::vector<int> UnitsByNeed(const ModelLayout& layout) {
  std::vector<int> units = {0, layout.head_unit()};
  for (int layer = 1; layer < layout.head_unit(); ++layer) {
    units.push_back(layer);
  }
  return units;
}

// So many of the units, or all, at even distances.
std::vector<int> Spread(const std::vector<int>& units, int count) {
  const int all = static_cast<int>(units.size());
  const int some = std::min(count, all);
  std::vector<int> chosen;
  for (int i = 0; i < all; ++i) {
    if ((i + 1) * some / all > i * some / all) {
      chosen.push_back(units[i]);
    }
  }
  return chosen;
}

std::vector<UpdatePlacement> UpdatesOf(const Choice& choice, const ModelLayout& layout) {
  const std::vector<int> units = UnitsByNeed(layout);
  const int count = static_cast<int>(units.size());
  std::vector<UpdatePlacement> updates(count, UpdatePlacement::kHost);
  const int on_device = std::min(choice.device_units, count);
  const int resident = std::min(on_device + choice.device_weight_units, count);
  for (int place = 0; place < resident; ++place) {
    updates[units[place]] =
        place < on_device ? UpdatePlacement::kDevice : UpdatePlacement::kOverBusResident;
  }
  // The rest in forward order, `bus` of them at even distances.
  std::vector<int> rest(units.begin() + resident, units.end());
  std::sort(rest.begin(), rest.end());
  const std::vector<int> over_bus = Spread(rest, choice.bus_units);
  for (const int unit : over_bus) {
    updates[unit] = UpdatePlacement::kOverBus;
  }
  for (const int unit : Spread(over_bus, choice.kept_gradient_units)) {
    updates[unit] = UpdatePlacement::kOverBusKeptGradient;
  }
  return updates;
}

bool Stashes(const Choice& choice) { return choice.order == MicroBatchOrder::kLayerMajor; }

// By unit: so many of the layers, at even distances.
std::vector<bool> SomeLayers(int count, const ModelLayout& layout) {
  std::vector<int> layers(layout.layer_count());
  std::iota(layers.begin(), layers.end(), 1);
  std::vector<bool> chosen(layout.units.size(), false);
  for (const int unit : Spread(layers, count)) {
    chosen[unit] = true;
  }
  return chosen;
}

int MicroBatches(const Choice& choice, const StepRows& step) {
  return static_cast<int>((step.rows + choice.micro_batch_rows - 1) / choice.micro_batch_rows);
}

// Layers that keep everything on the device are the last: theirs is needed again first.
int FirstFullLayer(const Choice& choice, const ModelLayout& layout) {
  return layout.layer_count() - std::min(choice.full_keep_layers, layout.layer_count()) + 1;
}

// What layers keep, and of those that do not keep everything on the device, which micro-batches
// they keep where: all the same, so that the bus is loaded evenly.
void SetKeeping(const Choice& choice, const PlacementSubject& subject, PipelineOptions& options) {
  const ModelLayout& layout = subject.layout;
  const int full = FirstFullLayer(choice, layout);
  options.keep.assign(layout.units.size(), choice.keep);
  std::fill(options.keep.begin() + full, options.keep.end() - 1, KeepLevel::kProducts);
  std::fill_n(options.keep.rbegin() + 1,
              std::min(choice.whole_keep_layers, choice.full_keep_layers), KeepLevel::kAll);
  const int on_host = std::min(choice.host_kept_micro_batches, options.max_micro_batches);
  const int on_device =
      std::min(choice.device_kept_micro_batches, options.max_micro_batches - on_host);
  if (!Stashes(choice) || on_host + on_device == 0) {
    return;
  }
  options.kept_on_host.assign(layout.units.size(), false);
  std::fill(options.kept_on_host.begin() + 1, options.kept_on_host.begin() + full, true);
  std::fill(options.keep.begin() + 1, options.keep.begin() + full, KeepLevel::kProducts);
  options.kept_places = SpreadKeptPlaces(options.max_micro_batches, on_host, on_device);
}

}  // namespace

Choice Canonical(Choice choice, const ModelLayout& layout) {
  const int layers = layout.layer_count();
  const int units = layers + 2;
  choice.device_units = std::min(choice.device_units, units);
  choice.device_weight_units = std::min(choice.device_weight_units, units - choice.device_units);
  const int others = units - choice.device_units - choice.device_weight_units;
  choice.bus_units = std::min(choice.bus_units, others);
  choice.kept_gradient_units = std::min(choice.kept_gradient_units, choice.bus_units);
  choice.weight_slots = std::min(choice.weight_slots, std::min(layers, others));
  choice.full_keep_layers = std::min(choice.full_keep_layers, layers);
  choice.whole_keep_layers = std::min(choice.whole_keep_layers, choice.full_keep_layers);
  if (!Stashes(choice)) {
    choice.host_boundary_layers = 0;
  }
  if (!Stashes(choice) || choice.full_keep_layers == layers) {
    choice.host_kept_micro_batches = 0;
    choice.device_kept_micro_batches = 0;
  }
  if (choice.host_kept_micro_batches > 0 || choice.device_kept_micro_batches > 0 ||
      choice.full_keep_layers == layers) {
    choice.keep = KeepLevel::kProducts;
  } else if (choice.keep == KeepLevel::kProducts) {
    choice.full_keep_layers = layers;
  }
  if (choice.host_boundary_layers == 0 && choice.host_kept_micro_batches == 0) {
    choice.stash_slots = 0;
  }
  return choice;
}

PipelineOptions OptionsOf(const Choice& choice, const PlacementSubject& subject) {
  const StepRows& step = subject.step;
  PipelineOptions options;
  options.order = choice.order;
  options.weight_slot_count = choice.weight_slots;
  options.gradient_slot_count = choice.gradient_slots;
  options.resident_weights = choice.weight_slots >= subject.layout.layer_count();
  options.updates = UpdatesOf(choice, subject.layout);
  if (Stashes(choice)) {
    options.boundary_on_host = SomeLayers(choice.host_boundary_layers, subject.layout);
    options.stash_slot_count = choice.stash_slots;
    options.fold_stash_layers = subject.fold_layers;
  }
  options.pin = subject.pin;
  options.compute_dtype = subject.compute_dtype;
  options.max_micro_batch_tokens = choice.micro_batch_rows * step.row_tokens;
  options.max_step_tokens = step.rows * step.row_tokens;
  options.max_micro_batches = MicroBatches(choice, step);
  SetKeeping(choice, subject, options);
  options.workspace_bytes = subject.memory.workspace_bytes(options.max_micro_batch_tokens);
  options.batch_table_bytes = subject.memory.batch_table_bytes(options.max_micro_batch_tokens);
  options.kept_token_bytes = subject.memory.kept_token_bytes;
  options.stages_loads = subject.memory.stages_loads;
  options.poisons_freed_slots = false;
  return options;
}

}  // namespace megatrain
