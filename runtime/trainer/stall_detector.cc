#include "runtime/trainer/stall_detector.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace megatrain {
namespace {

bool HasWork(const JobLook& look) {
  return !look.phase.empty() ||
         (look.pipeline.has_value() &&
          std::any_of(look.pipeline->begin(), look.pipeline->end(),
                      [](const StreamProgress& stream) { return !stream.operation.empty(); }));
}

// What the stream did between two looks.
std::string DescribeStream(StreamKind kind, const StreamFigures& before,
                           const StreamProgress& progress) {
  const std::string name(StreamName(kind));
  for (const WaitReason reason : kAllWaitReasons) {
    if (progress.figures.wait(reason) > before.wait(reason)) {
      return absl::StrCat(name, " waits for ", std::string(WaitReasonName(reason)), " before ",
                          progress.operation);
    }
  }
  return absl::StrCat(name, " is in ", progress.operation);
}

}  // namespace

absl::Duration StallDetector::Take(const JobLook& look, absl::Duration now) {
  if (!last_.has_value() || Moved(look) || !HasWork(look)) {
    stalled_ = absl::ZeroDuration();
  } else {
    stalled_ += std::min(now - last_time_, kLongestGap);
  }
  last_time_ = now;
  before_last_ = std::move(last_);
  last_ = look;
  return stalled_;
}

bool StallDetector::Moved(const JobLook& look) const {
  if (look.phase != last_->phase || look.beat_count != last_->beat_count ||
      look.pipeline.has_value() != last_->pipeline.has_value()) {
    return true;
  }
  for (size_t i = 0; look.pipeline.has_value() && i < look.pipeline->size(); ++i) {
    if ((*look.pipeline)[i].figures.operation_count !=
        (*last_->pipeline)[i].figures.operation_count) {
      return true;
    }
  }
  return false;
}

std::string StallDetector::Describe() const {
  std::vector<std::string> parts;
  if (last_.has_value() && !last_->phase.empty()) {
    parts.push_back(absl::StrCat(last_->phase, " does not go on"));
  }
  const bool both =
      before_last_.has_value() && before_last_->pipeline.has_value() && last_->pipeline.has_value();
  for (size_t i = 0; both && i < last_->pipeline->size(); ++i) {
    const StreamProgress& progress = (*last_->pipeline)[i];
    if (!progress.operation.empty()) {
      parts.push_back(DescribeStream(static_cast<StreamKind>(i),
                                     (*before_last_->pipeline)[i].figures, progress));
    }
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace megatrain
