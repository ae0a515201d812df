#include "runtime/planner/placement.h"

#include <algorithm>
#include <vector>

#include "runtime/pipeline/device_memory.h"

namespace megatrain {
namespace {

// What micro-batches aim at when the job leaves them free; smaller ones only make products slower.
constexpr std::array<int64_t, 7> kMicroBatchTokens = {65536, 32768, 16384, 8192, 4096, 2048, 1024};

// In layer-major order larger ones gain nothing on any GPU that was measured: weights cross the bus
// once a pass anyway. In the other order each reads and writes all gradients once more: a 1.5B on
// an H200 is 2.6 % faster at 65,536 tokens than at 16,384.
constexpr int64_t kMostLayerMajorTokens = 16384;

constexpr std::array kKeepLevels = {KeepLevel::kAll, KeepLevel::kProjections, KeepLevel::kAttention,
                                    KeepLevel::kNothing};

// A smaller micro-batch must be predicted to be that much faster to be taken.
constexpr double kWorthwhile = 0.995;

constexpr int kDefaultSlotCount = 2;

// All that distinguishes one placement from another.
struct Choice {
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int64_t micro_batch_rows = 1;
  bool resident_weights = false;
  KeepLevel keep = KeepLevel::kNothing;  // of every layer
  int full_keep_layers = 0;              // of the last so many layers: everything
  int device_state_units = 0;
};

// The largest value in [0, limit] for which `fits`, or -1. Whatever fits with more fits with less.
int LargestThat(int limit, const std::function<bool(int)>& fits) {
  int low = -1;
  for (int high = limit + 1; high - low > 1;) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

class Chooser {
 public:
  Chooser(const ModelConfig& config, const ModelLayout& layout, const PlacementRequest& request,
          const BackendMemory& memory, const MachineSpeeds& speeds)
      : config_(config), layout_(layout), request_(request), memory_(memory), speeds_(speeds) {}

  Placement Place(const Choice& choice) const {
    Placement placement{.pipeline = Options(choice), .micro_batch_rows = choice.micro_batch_rows};
    placement.predicted_step_seconds =
        PredictStepSeconds(config_, layout_, request_.step, placement.pipeline, speeds_);
    return placement;
  }

  std::optional<Placement> Best() const {
    std::optional<Placement> best;
    for (const Choice& start : Starts()) {
      for (const KeepLevel keep : Levels()) {
        Choice choice = start;
        choice.keep = keep;
        for (const bool states_first : {true, false}) {
          if (Fill(states_first, choice)) {
            TakeBetter(Place(choice), best);
          }
        }
      }
    }
    return best;
  }

  Choice Smallest() const {
    Choice smallest = Starts().back();
    for (const Choice& choice : Starts()) {
      if (ArenaBytes(choice) < ArenaBytes(smallest)) {
        smallest = choice;
      }
    }
    return smallest;
  }

 private:
  static void TakeBetter(const Placement& placement, std::optional<Placement>& best) {
    if (!best || placement.predicted_step_seconds < kWorthwhile * best->predicted_step_seconds) {
      best = placement;
    }
  }

  // Orders, cuts and residence, without anything more on the device; larger micro-batches first.
  std::vector<Choice> Starts() const {
    std::vector<Choice> starts;
    for (const int64_t rows : MicroBatchRows()) {
      for (const MicroBatchOrder order :
           {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
        for (const bool resident : {true, false}) {
          if (request_.order.value_or(order) == order && IsUseful(order, rows) &&
              request_.resident_weights.value_or(resident) == resident) {
            starts.push_back({.order = order,
                              .micro_batch_rows = rows,
                              .resident_weights = resident,
                              .keep = request_.keep_level.value_or(KeepLevel::kNothing),
                              .device_state_units = request_.device_state_units.value_or(0)});
          }
        }
      }
    }
    return starts;
  }

  bool IsUseful(MicroBatchOrder order, int64_t rows) const {
    return order == MicroBatchOrder::kMicroBatchMajor || request_.micro_batch_rows > 0 ||
           rows == 1 || rows * request_.step.row_tokens <= kMostLayerMajorTokens;
  }

  // Descending, each once, such that a step's micro-batches are of one size but for the last.
  std::vector<int64_t> MicroBatchRows() const {
    const StepRows& step = request_.step;
    if (request_.micro_batch_rows > 0) {
      return {std::min(request_.micro_batch_rows, step.rows)};
    }
    std::vector<int64_t> counts;
    for (const int64_t tokens : kMicroBatchTokens) {
      const int64_t most = std::clamp<int64_t>(tokens / step.row_tokens, 1, step.rows);
      const int64_t micro_batches = (step.rows + most - 1) / most;
      const int64_t rows = (step.rows + micro_batches - 1) / micro_batches;
      if (counts.empty() || rows < counts.back()) {
        counts.push_back(rows);
      }
    }
    return counts;
  }

  std::vector<KeepLevel> Levels() const {
    if (request_.keep_level) {
      return {*request_.keep_level};
    }
    return {kKeepLevels.begin(), kKeepLevels.end()};
  }

  // Puts as much on the device as has room: states of units, then what layers keep, or the other
  // way round. False when not even the choice as it is has.
  bool Fill(bool states_first, Choice& choice) const {
    choice.full_keep_layers = 0;
    choice.device_state_units = request_.device_state_units.value_or(0);
    if (!Fits(choice)) {
      return false;
    }
    for (const bool states : {states_first, !states_first}) {
      int& count = states ? choice.device_state_units : choice.full_keep_layers;
      const bool fixed =
          states ? request_.device_state_units.has_value() : request_.keep_level.has_value();
      if (fixed) {
        continue;
      }
      count =
          LargestThat(states ? layout_.layer_count() + 2 : layout_.layer_count(), [&](int value) {
            count = value;
            return Fits(choice);
          });
    }
    return true;
  }

  int64_t ArenaBytes(const Choice& choice) const {
    return MapDeviceMemory(layout_, Options(choice)).bytes.total();
  }

  bool Fits(const Choice& choice) const { return ArenaBytes(choice) <= request_.device_bytes; }

  PipelineOptions Options(const Choice& choice) const {
    const StepRows& step = request_.step;
    PipelineOptions options;
    options.order = choice.order;
    options.weight_slot_count =
        request_.weight_slot_count > 0 ? request_.weight_slot_count : kDefaultSlotCount;
    options.gradient_slot_count = kDefaultSlotCount;
    options.resident_weights = choice.resident_weights;
    options.updates = Updates(choice.device_state_units);
    options.keep.assign(layout_.units.size(), choice.keep);
    std::fill_n(options.keep.end() - 1 - choice.full_keep_layers, choice.full_keep_layers,
                KeepLevel::kAll);
    options.compute_dtype = request_.compute_dtype;
    options.max_micro_batch_tokens = choice.micro_batch_rows * step.row_tokens;
    options.max_step_tokens = step.rows * step.row_tokens;
    options.max_micro_batches =
        static_cast<int>((step.rows + choice.micro_batch_rows - 1) / choice.micro_batch_rows);
    options.workspace_bytes = memory_.workspace_bytes(options.max_micro_batch_tokens);
    options.batch_table_bytes = memory_.batch_table_bytes(options.max_micro_batch_tokens);
    options.kept_token_bytes = memory_.kept_token_bytes;
    options.stages_loads = memory_.stages_loads;
    options.poisons_freed_slots = false;
    return options;
  }

  // The embedding and the head have the first weights that a step needs and the last gradients that
  // it has, then come the layers in their order.
  std::vector<UpdatePlacement> Updates(int device_units) const {
    std::vector<UpdatePlacement> updates(layout_.units.size(), UpdatePlacement::kHost);
    const int count = std::min(device_units, static_cast<int>(updates.size()));
    for (int place = 0; place < count; ++place) {
      updates[place == 0   ? 0
              : place == 1 ? layout_.head_unit()
                           : place - 1] = UpdatePlacement::kDevice;
    }
    return updates;
  }

  const ModelConfig& config_;
  const ModelLayout& layout_;
  const PlacementRequest& request_;
  const BackendMemory& memory_;
  const MachineSpeeds& speeds_;
};

}  // namespace

std::optional<Placement> ChoosePlacement(const ModelConfig& config, const ModelLayout& layout,
                                         const PlacementRequest& request,
                                         const BackendMemory& memory, const MachineSpeeds& speeds) {
  return Chooser(config, layout, request, memory, speeds).Best();
}

Placement SmallestPlacement(const ModelConfig& config, const ModelLayout& layout,
                            const PlacementRequest& request, const BackendMemory& memory,
                            const MachineSpeeds& speeds) {
  const Chooser chooser(config, layout, request, memory, speeds);
  return chooser.Place(chooser.Smallest());
}

}  // namespace megatrain
