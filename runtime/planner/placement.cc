#include "runtime/planner/placement.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/store_options.h"
#include "runtime/planner/step_prediction.h"

namespace megatrain {
namespace {

// What micro-batches aim at when the job leaves them free; smaller ones only make products slower.
constexpr std::array<int64_t, 7> kMicroBatchTokens = {
    kMostMicroBatchTokens, 32768, 16384, 8192, 4096, 2048, 1024};

// In layer-major order larger ones gain nothing on any GPU that was measured: weights cross the bus
// once a pass anyway. In the other order each reads and writes all gradients once more: a 1.5B on
// an H200 is 2.6 % faster at 65,536 tokens than at 16,384.
constexpr int64_t kMostLayerMajorTokens = 16384;

constexpr std::array kKeepLevels = {KeepLevel::kAll, KeepLevel::kProjections, KeepLevel::kAttention,
                                    KeepLevel::kNothing};

// A smaller micro-batch must be predicted to be that much faster to be taken.
constexpr double kWorthwhile = 0.995;

// A change of a placement that is no better than this is none.
constexpr double kImproves = 0.9995;

constexpr int kDefaultSlotCount = 2;

// Of a step that are told apart.
constexpr int kMostMicroBatches = 64;

// Fewer make copies wait for each other; more take up no jitter.
constexpr int kLeastStashSlots = 3;
constexpr int kMostStashSlots = 9;

// Of the first choices, so many are improved.
constexpr int kImprovedCount = 3;

// And those which, with one of so many units updated over the bus, are that near to the first.
constexpr int kOverBusShare = 8;
constexpr double kPromising = 1.05;

// Rounds over all numbers of a choice; the first ones gain nearly all.
constexpr int kMostRounds = 3;

// Guesses by a straight line before a search halves what is left.
constexpr int kLineGuesses = 4;

// Values of a number that are tried, beside its neighbours.
constexpr int kGrid = 6;

// A number of a choice. One that fills takes what memory there is: more of it is never slower.
struct Dimension {
  int Choice::* count;
  int least;
  int most;
  bool fills;

  bool is_fixed() const { return least == most; }
};

struct Candidate {
  Choice choice;
  double score = 0;  // SimulatedStep's
};

// Bytes of a choice above what the request has room for; it fits where both are 0 and below.
struct Excesses {
  double device;
  double host;
};

// Of a choice that was looked at: its score, or one that it is not below.
struct Known {
  double score = 0;
  bool is_exact = false;
};

// The largest value in [least, most] whose excess is not above 0, or least. The excess rises with
// the value, by steps that are nearly equal: a straight line finds the largest sooner than halving.
int LargestThat(int least, int most, double least_excess,
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

// [fixed, fixed], or [least, most].
Dimension Between(int Choice::* count, std::optional<int> fixed, int least, int most, bool fills) {
  return {count, fixed.value_or(least), fixed.value_or(most), fills};
}

class Search {
 public:
  Search(const ModelConfig& config, const ModelLayout& layout, const PlacementRequest& request,
         const BackendMemory& memory, const MachineSpeeds& speeds)
      : request_(request),
        subject_{layout, request.step,        request.compute_dtype,
                 memory, request.fold_layers, request.pin},
        predictor_{config, layout, request.step, speeds} {
    const int layers = layout.layer_count();
    const int units = layers + 2;
    const int least_kept = LeastKeptGradients(units);
    const auto no_keep = request.keep_level ? std::optional(0) : std::nullopt;
    dimensions_ = {
        Between(&Choice::device_units, request.device_state_units, 0, units, true),
        Between(&Choice::full_keep_layers, no_keep, 0, layers, true),
        SlotDimension(layers),
        Between(&Choice::device_weight_units, request.device_weight_units, 0, units, false),
        Between(&Choice::bus_units, request.bus_update_units, least_kept, units, false),
        Between(&Choice::kept_gradient_units, request.kept_gradient_units, least_kept, units,
                false),
        Between(&Choice::host_boundary_layers, request.host_boundary_layers, 0, layers, false),
        Between(&Choice::host_kept_micro_batches,
                request.keep_level ? 0 : request.host_kept_micro_batches, 0, kMostMicroBatches,
                false),
        Between(&Choice::device_kept_micro_batches, no_keep, 0, kMostMicroBatches, false),
        Between(&Choice::stash_slots, std::nullopt, kLeastStashSlots, kMostStashSlots, false),
    };
  }

  std::optional<Candidate> Best() {
    std::vector<Candidate> firsts = FirstChoices();
    AddOverBus(firsts);
    std::optional<Candidate> best;
    for (const Candidate& first : firsts) {
      const Candidate improved = Improve(first);
      if (!best || improved.score < kWorthwhile * best->score) {
        best = improved;
      }
    }
    return best;
  }

  // Of those that the host has room for, if there are any.
  Choice Smallest() const {
    const std::vector<Choice> starts = Starts();
    const auto size_of = [&](const Choice& choice) {
      const Excesses excesses = ExcessesOf(choice);
      return std::make_pair(excesses.host > 0, excesses.device);
    };
    return *std::min_element(starts.begin(), starts.end(), [&](const Choice& a, const Choice& b) {
      return size_of(a) < size_of(b);
    });
  }

  Placement Place(const Choice& choice) const {
    Placement placement{.pipeline = OptionsOf(choice, subject_),
                        .micro_batch_rows = choice.micro_batch_rows,
                        .predicted = {}};
    placement.predicted = predictor_.Predict(placement.pipeline);
    return placement;
  }

 private:
  Dimension SlotDimension(int layers) const {
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

  // Orders, cuts and levels of keeping, without anything more on the device; larger micro-batches
  // first.
  std::vector<Choice> Starts() const {
    std::vector<Choice> starts;
    for (const int64_t rows : MicroBatchRows()) {
      for (const MicroBatchOrder order :
           {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
        if (request_.order.value_or(order) != order || !IsUseful(order, rows)) {
          continue;
        }
        for (const KeepLevel keep : kKeepLevels) {
          if (request_.keep_level.value_or(keep) == keep) {
            AddStarts(order, rows, keep, starts);
          }
        }
      }
    }
    return starts;
  }

  // In layer-major order also with boundaries on the host, and with parts of what layers keep: each
  // alone costs slots that only several of them are worth.
  void AddStarts(MicroBatchOrder order, int64_t rows, KeepLevel keep,
                 std::vector<Choice>& starts) const {
    const bool stashes = order == MicroBatchOrder::kLayerMajor;
    for (const bool fewest : {true, false}) {
      for (const int64_t share : {0, 1, 2}) {  // thirds of the micro-batches
        Choice start = Start(order, rows, keep);
        if (stashes && !request_.host_kept_micro_batches && !request_.keep_level) {
          start.host_kept_micro_batches = static_cast<int>(MicroBatches(rows) * share / 3);
        }
        if (stashes && !request_.host_boundary_layers) {
          start.host_boundary_layers = fewest ? FewestOnHost(start) : MostOnHost(start);
        }
        const Choice canonical = Canonical(start, subject_.layout);
        if (std::none_of(starts.begin(), starts.end(), [&](const Choice& other) {
              return Canonical(other, subject_.layout) == canonical;
            })) {
          starts.push_back(start);
        }
      }
    }
  }

  // Of a start in layer-major order, the boundaries that the device has no room for.
  int FewestOnHost(Choice start) const {
    const int layers = subject_.layout.layer_count();
    const auto excess_of = [&](int on_device) {
      start.host_boundary_layers = layers - on_device;
      return ExcessesOf(start).device;
    };
    return layers - LargestThat(0, layers, excess_of(0), excess_of);
  }

  // Of the same, the boundaries that the host has room for.
  int MostOnHost(Choice start) const {
    const auto excess_of = [&](int on_host) {
      start.host_boundary_layers = on_host;
      return ExcessesOf(start).host;
    };
    return LargestThat(0, subject_.layout.layer_count(), excess_of(0), excess_of);
  }

  Choice Start(MicroBatchOrder order, int64_t rows, KeepLevel keep) const {
    Choice choice{.order = order, .micro_batch_rows = rows, .keep = keep};
    choice.gradient_slots =
        request_.gradient_slot_count > 0 ? request_.gradient_slot_count : kDefaultSlotCount;
    for (const Dimension& dimension : dimensions_) {
      choice.*dimension.count = dimension.least;
    }
    return choice;
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

  // The best ways to fill the device from the starts, the best of them first.
  std::vector<Candidate> FirstChoices() {
    std::vector<Candidate> firsts;
    for (const Choice& start : Starts()) {
      const double excess = ExcessOf(start);
      if (excess > 0) {
        continue;
      }
      for (const size_t first : {0, 1, 2}) {
        const Choice choice = Fill(start, excess, first, nullptr);
        if (known_.contains(Canonical(choice, subject_.layout))) {
          continue;
        }
        const double limit = firsts.size() < kImprovedCount
                                 ? std::numeric_limits<double>::infinity()
                                 : firsts.back().score;
        if (const std::optional<Candidate> candidate = Predict(choice, kWorthwhile * limit)) {
          firsts.insert(std::upper_bound(firsts.begin(), firsts.end(), *candidate, IsShorter),
                        *candidate);
          firsts.resize(std::min<size_t>(firsts.size(), kImprovedCount));
        }
      }
    }
    return firsts;
  }

  // The firsts with some updates over the bus: the first such unit alone, which brings the slots
  // that all pass through, often gains nothing.
  void AddOverBus(std::vector<Candidate>& firsts) {
    if (firsts.empty() || request_.bus_update_units) {
      return;
    }
    const int units = subject_.layout.layer_count() + 2;
    const double promising = kPromising * firsts.front().score;
    std::vector<Candidate> over_bus;
    for (const Candidate& first : firsts) {
      Choice start = first.choice;
      start.bus_units = std::max(start.bus_units, units / kOverBusShare);
      Candidate candidate{start, promising};
      TryFills(start, nullptr, /*improves=*/1, candidate);
      if (candidate.score < promising) {
        over_bus.push_back(candidate);
      }
    }
    firsts.insert(firsts.end(), over_bus.begin(), over_bus.end());
  }

  static bool IsShorter(const Candidate& a, const Candidate& b) {
    return a.score < kWorthwhile * b.score;
  }

  // Varies one number after another, and fills the device anew with the others, as long as that
  // makes the step shorter.
  Candidate Improve(Candidate best) {
    double before = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kMostRounds && best.score < kImproves * before; ++round) {
      before = best.score;
      for (const Dimension& dimension : dimensions_) {
        if (dimension.count == &Choice::stash_slots && best.choice.host_boundary_layers == 0 &&
            best.choice.host_kept_micro_batches == 0) {
          continue;  // there is nothing to pass through them
        }
        for (const int value : Values(dimension, best.choice)) {
          Try(dimension, value, best);
        }
      }
      for (const int64_t rows : MicroBatchRows()) {
        TryCut(rows, best);
      }
    }
    return best;
  }

  // Another cut, whose micro-batches are kept where the same shares of them were.
  void TryCut(int64_t rows, Candidate& best) {
    Choice choice = best.choice;
    if (rows == choice.micro_batch_rows || !IsUseful(choice.order, rows)) {
      return;
    }
    const double worthwhile = rows < choice.micro_batch_rows ? kWorthwhile : kImproves;
    const auto before = static_cast<int>(MicroBatches(choice.micro_batch_rows));
    const auto count = static_cast<int>(MicroBatches(rows));
    choice.micro_batch_rows = rows;
    for (const Dimension& dimension : dimensions_) {
      if (IsByMicroBatch(dimension) && !dimension.is_fixed()) {
        int& kept = choice.*dimension.count;
        kept = (std::min(kept, before) * count + before / 2) / before;
      }
    }
    TryFills(choice, nullptr, worthwhile, best);
  }

  static bool IsByMicroBatch(const Dimension& dimension) {
    return dimension.count == &Choice::host_kept_micro_batches ||
           dimension.count == &Choice::device_kept_micro_batches;
  }

  int64_t MicroBatches(int64_t rows) const { return (request_.step.rows + rows - 1) / rows; }

  std::vector<int> Values(const Dimension& dimension, const Choice& choice) const {
    std::vector<int> values;
    if (dimension.is_fixed()) {
      return values;
    }
    const int most = IsByMicroBatch(dimension)
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

  void Try(const Dimension& dimension, int value, Candidate& best) {
    Choice choice = best.choice;
    choice.*dimension.count = value;
    TryFills(choice, &dimension, kImproves, best);
  }

  // What becomes of a choice that is filled anew, but for one number.
  void TryFills(Choice start, const Dimension* but, double improves, Candidate& best) {
    for (const Dimension& other : dimensions_) {
      if (other.fills && &other != but) {
        start.*other.count = other.least;
      }
    }
    for (const Choice& choice : FillsOf(start, but)) {
      if (choice == best.choice) {
        continue;
      }
      if (const auto candidate = Predict(choice, improves * best.score)) {
        best = *candidate;
      }
    }
  }

  // Ways to fill a choice but for one number; none where it does not fit.
  const std::vector<Choice>& FillsOf(const Choice& start, const Dimension* but) {
    const auto [known, is_new] = fills_.try_emplace({start, but});
    const double excess = is_new ? ExcessOf(start) : 0;
    if (is_new && excess <= 0) {
      for (const size_t first : {0, 1}) {
        known->second.push_back(Fill(start, excess, first, but));
      }
    }
    return known->second;
  }

  // Puts as much on the device as has room, beginning with the dimension `first`; `but` stays as it
  // is. Requires a choice that fits, with its excess.
  Choice Fill(Choice choice, double excess, size_t first, const Dimension* but) const {
    for (size_t i = 0; i < dimensions_.size(); ++i) {
      const Dimension& dimension = dimensions_[(first + i) % dimensions_.size()];
      if (!dimension.fills || dimension.is_fixed() || &dimension == but) {
        continue;
      }
      int& count = choice.*dimension.count;
      count = LargestThat(count, dimension.most, excess, [&](int value) {
        Choice larger = choice;
        larger.*dimension.count = value;
        return ExcessOf(larger);
      });
      excess = ExcessOf(choice);
    }
    return choice;
  }

  // Absent when its score is not below the limit.
  std::optional<Candidate> Predict(const Choice& choice, double limit) {
    Known& known = known_[Canonical(choice, subject_.layout)];
    if (!known.is_exact && known.score < limit) {
      const std::optional<SimulatedStep> step =
          predictor_.PredictBelow(OptionsOf(choice, subject_), limit);
      known = step ? Known{step->score(), true} : Known{limit, false};
    }
    return known.score < limit ? std::optional(Candidate{choice, known.score}) : std::nullopt;
  }

  Excesses ExcessesOf(const Choice& choice) const {
    const PipelineOptions options = OptionsOf(choice, subject_);
    const DeviceMemoryMap map = MapDeviceMemory(subject_.layout, options);
    return {.device = static_cast<double>(map.bytes.total() - request_.device_bytes),
            .host = static_cast<double>(HostBytes(options, map) - request_.host_bytes)};
  }

  double ExcessOf(const Choice& choice) const {
    const Excesses excesses = ExcessesOf(choice);
    return std::max(excesses.device, excesses.host);
  }

  int64_t HostBytes(const PipelineOptions& options, const DeviceMemoryMap& map) const {
    return PinnedArena::Bytes(map.host_parts) + GradientBytes(options);
  }

  int64_t GradientBytes(const PipelineOptions& options) const {
    return HostStore::GradientBytes(
        subject_.layout, StoreOptions(subject_.compute_dtype, options, subject_.fold_layers));
  }

  // How many units must keep their gradient on the device for the host to have room for the rest;
  // 0 when no number helps.
  int LeastKeptGradients(int units) const {
    for (int count = 0; count <= units; ++count) {
      const Choice choice{.bus_units = count, .kept_gradient_units = count};
      if (GradientBytes(OptionsOf(choice, subject_)) <= request_.host_bytes) {
        return count;
      }
    }
    return 0;
  }

  const PlacementRequest& request_;
  const PlacementSubject subject_;
  const StepPredictor predictor_;
  std::vector<Dimension> dimensions_;
  std::map<Choice, Known> known_;  // by what is Canonical
  std::map<std::pair<Choice, const Dimension*>, std::vector<Choice>> fills_;  // FillsOf
};

}  // namespace

std::optional<Placement> ChoosePlacement(const ModelConfig& config, const ModelLayout& layout,
                                         const PlacementRequest& request,
                                         const BackendMemory& memory, const MachineSpeeds& speeds) {
  Search search(config, layout, request, memory, speeds);
  const std::optional<Candidate> best = search.Best();
  return best ? std::optional(search.Place(best->choice)) : std::nullopt;
}

Placement SmallestPlacement(const ModelConfig& config, const ModelLayout& layout,
                            const PlacementRequest& request, const BackendMemory& memory,
                            const MachineSpeeds& speeds) {
  const Search search(config, layout, request, memory, speeds);
  return search.Place(search.Smallest());
}

}  // namespace megatrain
