#include "runtime/planner/placement.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "runtime/planner/placement_space.h"
#include "runtime/planner/placement_starts.h"
#include "runtime/planner/step_prediction.h"

namespace megatrain {
namespace {

// A smaller micro-batch must be predicted to be that much faster to be taken.
constexpr double kWorthwhile = 0.998;

// A change of a placement that is no better than this is none.
constexpr double kImproves = 0.9995;

// Of the first choices, so many are improved.
constexpr int kImprovedCount = 3;

// And those which, with one of so many units updated over the bus, are that near to the first.
constexpr int kOverBusShare = 8;
constexpr double kPromising = 1.05;

// Rounds over all numbers of a choice; the first ones gain nearly all.
constexpr int kMostRounds = 3;

struct Candidate {
  Choice choice;
  double seconds = 0;  // of its step
};

// Of a choice that was looked at: how long its step is, or what it is not below.
struct Known {
  double seconds = 0;
  bool is_exact = false;
};

using Dimension = PlacementSpace::Dimension;

class Search {
 public:
  Search(const ModelConfig& config, const ModelLayout& layout, const PlacementRequest& request,
         const BackendMemory& memory, const MachineSpeeds& speeds)
      : space_(layout, request, memory), predictor_{config, layout, request.step, speeds} {}

  std::optional<Candidate> Best() {
    std::vector<Candidate> firsts = FirstChoices();
    AddOverBus(firsts);
    std::optional<Candidate> best;
    for (const Candidate& first : firsts) {
      const Candidate improved = Improve(first);
      if (!best || improved.seconds < kWorthwhile * best->seconds) {
        best = improved;
      }
    }
    return best;
  }

  // Of those that the host has room for, if there are any.
  Choice Smallest() const {
    const std::vector<Choice> starts = PlacementStarts(space_);
    const auto size_of = [&](const Choice& choice) {
      const PlacementSpace::Excesses excesses = space_.ExcessesOf(choice);
      return std::make_pair(excesses.host > 0, excesses.device);
    };
    return *std::min_element(starts.begin(), starts.end(), [&](const Choice& a, const Choice& b) {
      return size_of(a) < size_of(b);
    });
  }

  Placement Place(const Choice& choice) const {
    Placement placement{.pipeline = OptionsOf(choice, space_.subject()),
                        .micro_batch_rows = choice.micro_batch_rows,
                        .predicted = {}};
    placement.predicted = predictor_.Predict(placement.pipeline);
    return placement;
  }

 private:
  // The best ways to fill the device from the starts, the best of them first.
  std::vector<Candidate> FirstChoices() {
    std::vector<Candidate> firsts;
    for (const Choice& start : PlacementStarts(space_)) {
      const double excess = space_.ExcessOf(start);
      if (excess > 0) {
        continue;
      }
      for (const size_t first : {0, 1, 2}) {
        const Choice choice = space_.Fill(start, excess, first, nullptr);
        if (known_.contains(Canonical(choice, space_.subject().layout))) {
          continue;
        }
        const double limit = firsts.size() < kImprovedCount
                                 ? std::numeric_limits<double>::infinity()
                                 : firsts.back().seconds;
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
    if (firsts.empty() || space_.request().bus_update_units) {
      return;
    }
    const int units = space_.subject().layout.layer_count() + 2;
    const double promising = kPromising * firsts.front().seconds;
    std::vector<Candidate> over_bus;
    for (const Candidate& first : firsts) {
      Choice start = first.choice;
      start.bus_units = std::max(start.bus_units, units / kOverBusShare);
      Candidate candidate{start, promising};
      TryFills(start, nullptr, /*improves=*/1, candidate);
      if (candidate.seconds < promising) {
        over_bus.push_back(candidate);
      }
    }
    firsts.insert(firsts.end(), over_bus.begin(), over_bus.end());
  }

  static bool IsShorter(const Candidate& a, const Candidate& b) {
    return a.seconds < kWorthwhile * b.seconds;
  }

  // Varies one number after another, and fills the device anew with the others, as long as that
  // makes the step shorter.
  Candidate Improve(Candidate best) {
    double before = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kMostRounds && best.seconds < kImproves * before; ++round) {
      before = best.seconds;
      for (const Dimension& dimension : space_.dimensions()) {
        if (dimension.count == &Choice::stash_slots && best.choice.host_boundary_layers == 0 &&
            best.choice.host_kept_micro_batches == 0) {
          continue;  // there is nothing to pass through them
        }
        for (const int value : space_.Values(dimension, best.choice)) {
          Try(dimension, value, best);
        }
      }
      for (const int64_t rows : space_.MicroBatchRows()) {
        TryCut(rows, best);
      }
    }
    return best;
  }

  // Another cut, whose micro-batches are kept where the same shares of them were.
  void TryCut(int64_t rows, Candidate& best) {
    Choice choice = best.choice;
    if (rows == choice.micro_batch_rows || !space_.IsUseful(choice.order, rows)) {
      return;
    }
    const double worthwhile = rows < choice.micro_batch_rows ? kWorthwhile : kImproves;
    const auto before = static_cast<int>(space_.MicroBatches(choice.micro_batch_rows));
    const auto count = static_cast<int>(space_.MicroBatches(rows));
    choice.micro_batch_rows = rows;
    for (const Dimension& dimension : space_.dimensions()) {
      if (dimension.is_by_micro_batch() && !dimension.is_fixed()) {
        int& kept = choice.*dimension.count;
        kept = (std::min(kept, before) * count + before / 2) / before;
      }
    }
    TryFills(choice, nullptr, worthwhile, best);
  }

  void Try(const Dimension& dimension, int value, Candidate& best) {
    Choice choice = best.choice;
    choice.*dimension.count = value;
    TryFills(choice, &dimension, kImproves, best);
  }

  // What becomes of a choice that is filled anew, but for one number.
  void TryFills(Choice start, const Dimension* but, double improves, Candidate& best) {
    for (const Dimension& other : space_.dimensions()) {
      if (other.fills && &other != but) {
        start.*other.count = other.least;
      }
    }
    for (const Choice& choice : FillsOf(start, but)) {
      if (choice == best.choice) {
        continue;
      }
      if (const auto candidate = Predict(choice, improves * best.seconds)) {
        best = *candidate;
      }
    }
  }

  // Ways to fill a choice but for one number; none where it does not fit.
  const std::vector<Choice>& FillsOf(const Choice& start, const Dimension* but) {
    const auto [known, is_new] = fills_.try_emplace({start, but});
    const double excess = is_new ? space_.ExcessOf(start) : 0;
    if (is_new && excess <= 0) {
      for (const size_t first : {0, 1}) {
        known->second.push_back(space_.Fill(start, excess, first, but));
      }
    }
    return known->second;
  }

  // Absent when its step is not below the limit.
  std::optional<Candidate> Predict(const Choice& choice, double limit) {
    Known& known = known_[Canonical(choice, space_.subject().layout)];
    if (!known.is_exact && known.seconds < limit) {
      const std::optional<SimulatedStep> step =
          predictor_.PredictBelow(OptionsOf(choice, space_.subject()), limit);
      known = step ? Known{step->seconds, true} : Known{limit, false};
    }
    return known.seconds < limit ? std::optional(Candidate{choice, known.seconds}) : std::nullopt;
  }

  const PlacementSpace space_;
  const StepPredictor predictor_;
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
