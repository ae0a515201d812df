#include "runtime/planner/placement_space.h"

#include <algorithm>
#include <array>

#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/pipeline/store_options.h"
#include "runtime/planner/operation_costs.h"

namespace megatrain {
namespace {

using Dimension = PlacementSpace::Dimension;

// Tokens that micro-batches aim at when the job leaves them free: so many eighths of each power of
// two. Larger ones write gradients less often, and leave less memory to states. Below
// kFewestMicroBatchTokens products only get slower.
constexpr std::array<int64_t, 4> kEighths = {8, 7, 6, 5};
constexpr int64_t kFewestMicroBatchTokens = 1024;

// In layer-major order larger ones gain nothing on any GPU that was measured: weights cross the bus
// once a pass anyway. In the other order each reads and writes all gradients once more: a 1.5B on
// an H200 is 2.6 % faster at 65,536 tokens than at 16,384.
constexpr int64_t kMostLayerMajorTokens = 16384;

constexpr int kDefaultSlotCount = 2;

// Of a step that are told apart.
constexpr int kMostMicroBatches = 64;

// Fewer make copies wait for each other; more take up no jitter.
constexpr int kLeastStashSlots = 3;
constexpr int kMostStashSlots = 9;

// Guesses by a straight line before a search halves what is left.
constexpr int kLineGuesses = 4;

// Of the numbers that fill, so many may be the first to take memory. The next one takes what they
// leave.
constexpr size_t kTurns = 3;

// Values of a number that are tried, beside its neighbours.
constexpr int kGrid = 6;

// Rows of a micro-batch when a step is cut into as few as may have at most `most` rows, all of one
// size but for the last.
int64_t EvenRows(const StepRows& step, int64_t most) {
  const int64_t allowed = std::clamp<int64_t>(most, 1, step.rows);
  const int64_t micro_batches = (step.rows + allowed - 1) / allowed;
  return (step.rows + micro_batches - 1) / micro_batches;
}

// [fixed, fixed], or [least, most].
Dimension Between(int Choice::* count, std::optional<int> fixed, int least, int most, bool fills) {
  return {count, fixed.value_or(least), fixed.value_or(most), fills};
}

}  // namespace

int LargestThatFits(int least, int most, double least_excess,
                    const std::function<double(int)>& excess_of) {
  const double most_excess = most > least ? excess_of(most) : 0;
  if (most_excess <= 0) {
    return std::max(least, most);
  }
  if (least_excess > 0) {
    return least;
  }
  int low = least;
  int high = most;
  double low_excess = least_excess;
  double high_excess = most_excess;
  for (int guesses = 0; high - low > 1; ++guesses) {
    const double share = guesses < kLineGuesses ? low_excess / (low_excess - high_excess) : 0.5;
    const int middle = std::clamp(low + static_cast<int>((high - low) * share), low + 1, high - 1);
    const double excess = excess_of(middle);
    (excess <= 0 ? low : high) = middle;
    (excess <= 0 ? low_excess : high_excess) = excess;
  }
  return low;
}

PlacementSpace::PlacementSpace(const ModelLayout& layout, const PlacementRequest& request,
                               const BackendMemory& memory)
    : request_(request), subject_{layout, request.step,        request.compute_dtype,
                                  memory, request.fold_layers, request.pin} {
  const int layers = layout.layer_count();
  const int units = layers + 2;
  const int least_kept = LeastKeptGradients(units);
  const auto no_keep = request.keep_level ? std::optional(0) : std::nullopt;
  dimensions_ = {
      Between(&Choice::device_units, request.device_state_units, 0, units, true),
      Between(&Choice::full_keep_layers, no_keep, 0, layers, true),
      SlotDimension(layers),
      Between(&Choice::whole_keep_layers, no_keep, 0, layers, true),
      Between(&Choice::device_weight_units, request.device_weight_units, 0, units, false),
      Between(&Choice::bus_units, request.bus_update_units, least_kept, units, false),
      Between(&Choice::kept_gradient_units, request.kept_gradient_units, least_kept, units, false),
      Between(&Choice::host_boundary_layers, request.host_boundary_layers, 0, layers, false),
      Between(&Choice::host_kept_micro_batches,
              request.keep_level ? 0 : request.host_kept_micro_batches, 0, kMostMicroBatches,
              false),
      Between(&Choice::device_kept_micro_batches, no_keep, 0, kMostMicroBatches, false),
      Between(&Choice::stash_slots, std::nullopt, kLeastStashSlots, kMostStashSlots, false),
  };
}

Dimension PlacementSpace::SlotDimension(int layers) const {
  if (request_.resident_weights.value_or(false)) {
    return Between(&Choice::weight_slots, layers, 0, 0, true);
  }
  if (request_.weight_slot_count > 0) {
    return Between(&Choice::weight_slots, request_.weight_slot_count, 0, 0, true);
  }
  const int most = request_.resident_weights.has_value() ? layers - 1 : layers;
  return Between(&Choice::weight_slots, std::nullopt, std::min(kDefaultSlotCount, layers),
                 std::max(most, std::min(kDefaultSlotCount, layers)), true);
}

std::vector<int64_t> PlacementSpace::MicroBatchRows() const {
  const StepRows& step = request_.step;
  if (request_.micro_batch_rows > 0) {
    return {std::min(request_.micro_batch_rows, step.rows)};
  }
  std::vector<int64_t> counts;
  for (int64_t most = kMostMicroBatchTokens; most >= kFewestMicroBatchTokens; most /= 2) {
    for (const int64_t eighths : kEighths) {
      const int64_t tokens = most * eighths / 8;
      const int64_t rows = EvenRows(step, tokens / step.row_tokens);
      if (tokens >= kFewestMicroBatchTokens && (counts.empty() || rows < counts.back())) {
        counts.push_back(rows);
      }
    }
  }
  return counts;
}

bool PlacementSpace::IsUseful(MicroBatchOrder order, int64_t rows) const {
  return order == MicroBatchOrder::kMicroBatchMajor || request_.micro_batch_rows > 0 || rows == 1 ||
         rows * request_.step.row_tokens <= kMostLayerMajorTokens;
}

Choice PlacementSpace::Least(MicroBatchOrder order, int64_t rows, KeepLevel keep) const {
  Choice choice{.order = order, .micro_batch_rows = rows, .keep = keep};
  choice.gradient_slots =
      request_.gradient_slot_count > 0 ? request_.gradient_slot_count : kDefaultSlotCount;
  for (const Dimension& dimension : dimensions_) {
    choice.*dimension.count = dimension.least;
  }
  return choice;
}

std::vector<int> PlacementSpace::Values(const Dimension& dimension, const Choice& choice) const {
  std::vector<int> values;
  if (dimension.is_fixed()) {
    return values;
  }
  const int most = dimension.is_by_micro_batch()
                       ? static_cast<int>(std::min<int64_t>(MicroBatches(choice.micro_batch_rows),
                                                            dimension.most))
                       : dimension.most;
  for (int i = 0; i <= kGrid; ++i) {
    values.push_back(dimension.least + (most - dimension.least) * i / kGrid);
  }
  for (const int step : {-2, -1, 1, 2}) {
    values.push_back(std::clamp(choice.*dimension.count + step, dimension.least, most));
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

Choice PlacementSpace::Fill(Choice choice, double excess, size_t first,
                            const Dimension* but) const {
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    const Dimension& dimension = dimensions_[i < kTurns ? (first + i) % kTurns : i];
    if (!dimension.fills || dimension.is_fixed() || &dimension == but) {
      continue;
    }
    int& count = choice.*dimension.count;
    count = LargestThatFits(count, dimension.most, excess, [&](int value) {
      Choice larger = choice;
      larger.*dimension.count = value;
      return ExcessOf(larger);
    });
    excess = ExcessOf(choice);
  }
  return choice;
}

PlacementSpace::Excesses PlacementSpace::ExcessesOf(const Choice& choice) const {
  const PipelineOptions options = OptionsOf(choice, subject_);
  const DeviceMemoryMap map = MapDeviceMemory(subject_.layout, options);
  return {.device = static_cast<double>(map.bytes.total() - request_.device_bytes),
          .host = static_cast<double>(HostBytes(options, map) - request_.host_bytes)};
}

double PlacementSpace::ExcessOf(const Choice& choice) const {
  const Excesses excesses = ExcessesOf(choice);
  return std::max(excesses.device, excesses.host);
}

int64_t PlacementSpace::HostBytes(const PipelineOptions& options,
                                  const DeviceMemoryMap& map) const {
  return PinnedArena::Bytes(map.host_parts) + GradientBytes(options);
}

int64_t PlacementSpace::GradientBytes(const PipelineOptions& options) const {
  return HostStore::GradientBytes(
      subject_.layout, StoreOptions(subject_.compute_dtype, options, subject_.fold_layers));
}

// How many units must keep their gradient on the device for the host to have room for the rest;
// 0 when no number helps.
int PlacementSpace::LeastKeptGradients(int units) const {
  for (int count = 0; count <= units; ++count) {
    const Choice choice{.bus_units = count, .kept_gradient_units = count};
    if (GradientBytes(OptionsOf(choice, subject_)) <= request_.host_bytes) {
      return count;
    }
  }
  return 0;
}

}  // namespace megatrain
