#include "server/checkpoints/start_choice.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// The better ones first.
std::vector<const v1::Checkpoint*> Candidates(
    const JobWishes& wishes, const std::vector<Numbered<v1::Checkpoint>>& newest_first) {
  const int64_t wished_step =
      wishes.start_checkpoint.empty() ? INT64_MAX : StepOfCheckpoint(wishes.start_checkpoint);
  std::vector<const v1::Checkpoint*> candidates;
  std::vector<const v1::Checkpoint*> earlier;
  for (const auto& [number, row] : newest_first) {
    if (number > wishes.start_after_number) {
      candidates.push_back(&row);
    } else if (row.step() <= wished_step) {
      earlier.push_back(&row);
    }
  }
  // No two have one step: they are named by it.
  std::sort(earlier.begin(), earlier.end(),
            [](const auto* a, const auto* b) { return a->step() > b->step(); });
  candidates.insert(candidates.end(), earlier.begin(), earlier.end());
  return candidates;
}

void Append(const std::string& words, JobStart& start) {
  absl::StrAppend(&start.passed_over, start.passed_over.empty() ? "" : "; ", words);
}

}  // namespace

bool StartWishStands(const JobWishes& wishes,
                     const std::vector<Numbered<v1::Checkpoint>>& newest_first) {
  return !wishes.start_checkpoint.empty() &&
         (newest_first.empty() || newest_first.front().number <= wishes.start_after_number);
}

JobStart ChooseStart(const JobRecord& record,
                     const std::vector<Numbered<v1::Checkpoint>>& newest_first) {
  JobStart start;
  for (const v1::Checkpoint* candidate : Candidates(record.wishes, newest_first)) {
    if (candidate->damage().empty()) {
      start.checkpoint = *candidate;
      break;
    }
    Append(absl::StrCat(candidate->name(), " is damaged: ", candidate->damage()), start);
  }
  const std::string& last = record.job.last_checkpoint();
  const bool is_there =
      std::any_of(newest_first.begin(), newest_first.end(),
                  [&last](const auto& row) { return row.message.name() == last; });
  const int64_t step = start.checkpoint.has_value() ? start.checkpoint->step() : -1;
  if (!last.empty() && !is_there && step < StepOfCheckpoint(last) &&
      !StartWishStands(record.wishes, newest_first)) {
    Append(absl::StrCat(last, " is not there any more"), start);
  }
  return start;
}

}  // namespace megatrain
