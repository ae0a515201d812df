#include "server/checkpoints/start_choice.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/base/status_macros.h"
#include "server/checkpoints/checkpoint_folders.h"

namespace megatrain {
namespace {

// The better ones first.
std::vector<const v1::Checkpoint*> Candidates(const JobWishes& wishes, const CheckpointRows& rows) {
  const int64_t wished_step =
      wishes.start_checkpoint.empty() ? INT64_MAX : StepOfCheckpoint(wishes.start_checkpoint);
  std::vector<const v1::Checkpoint*> candidates;
  std::vector<const v1::Checkpoint*> earlier;
  for (const auto& [number, row] : rows) {
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

// 0 of one that has no row.
int64_t NumberOf(const std::string& name, const CheckpointRows& rows) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&name](const auto& each) { return each.message.name() == name; });
  return row == rows.end() ? 0 : row->number;
}

}  // namespace

bool StartWishStands(const JobWishes& wishes, const CheckpointRows& rows) {
  return !wishes.start_checkpoint.empty() &&
         (rows.empty() || rows.front().number <= wishes.start_after_number);
}

JobStart ChooseStart(const JobRecord& record, const CheckpointRows& rows) {
  JobStart start;
  for (const v1::Checkpoint* candidate : Candidates(record.wishes, rows)) {
    if (candidate->damage().empty()) {
      start.checkpoint = *candidate;
      break;
    }
    Append(absl::StrCat(candidate->name(), " is damaged: ", candidate->damage()), start);
  }
  const std::string& last = record.job.last_checkpoint();
  const bool is_there = std::any_of(
      rows.begin(), rows.end(), [&last](const auto& row) { return row.message.name() == last; });
  const int64_t step = start.checkpoint.has_value() ? start.checkpoint->step() : -1;
  if (!last.empty() && !is_there && step < StepOfCheckpoint(last) &&
      !StartWishStands(record.wishes, rows)) {
    Append(absl::StrCat(last, " is not there any more"), start);
  }
  return start;
}

absl::StatusOr<JobStart> ChooseStartOrSource(const JobRecord& record, const CheckpointRows& rows,
                                             Database& database) {
  JobStart start = ChooseStart(record, rows);
  const std::string& source_name = record.job.forked_from();
  if (start.checkpoint.has_value() || source_name.empty()) {
    return start;
  }
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> source, ReadCheckpoint(database, source_name));
  if (!source.message.damage().empty()) {
    return absl::NotFoundError(absl::StrCat(source_name, ", of which ", record.job.name(),
                                            " is a fork, is damaged: ", source.message.damage()));
  }
  start.checkpoint = source.message;
  return start;
}

absl::Status CheckUnread(const std::vector<CheckpointListing::Invalid>& invalid,
                         const JobStart& start, const JobRecord& record,
                         const CheckpointRows& rows) {
  const bool wished = StartWishStands(record.wishes, rows);
  const int64_t step = start.checkpoint.has_value() ? start.checkpoint->step() : -1;
  const std::string name = start.checkpoint.has_value() ? start.checkpoint->name() : "";
  const int64_t number = NumberOf(name, rows);
  for (const CheckpointListing::Invalid& each : invalid) {
    const int64_t its_step = StepOfCheckpointId(each.id).value_or(-1);
    const int64_t its_number =
        NumberOf(absl::StrCat(record.job.name(), "/checkpoints/", each.id), rows);
    // Of a later step than one that was saved after it: the job went back behind it.
    const bool is_left = wished || (its_number != 0 && its_number < number);
    // It is that one or may be a later one, which the disk, or this version, does not give now.
    if (!IsInvalidCheckpoint(each.reason) && (its_step == step || (its_step > step && !is_left))) {
      return each.reason;
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
