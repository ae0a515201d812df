#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/stream_figures.h"
#include "runtime/schedule/accesses.h"
#include "runtime/schedule/schedule.h"
#include "runtime/schedule/schedule_checker.h"

namespace megatrain {
namespace {

// How many operations of every stream are over when an operation ends: what happens before it.
// Streams keep their order, so one number a stream says it all.
using VectorClock = std::array<int, kStreamCount>;

void Join(VectorClock& clock, const VectorClock& other) {
  for (int i = 0; i < kStreamCount; ++i) {
    clock[i] = std::max(clock[i], other[i]);
  }
}

// An operation of an unrolled run.
struct Instance {
  int step;
  int stream;
  int position;  // from 1 in its stream
  const Operation* operation;
};

std::string Describe(const Instance& instance) {
  return absl::StrCat("step ", instance.step, " ", Describe(*instance.operation));
}

// Who touched a resource since its last write, that included.
struct Users {
  std::optional<Instance> writer;
  std::array<std::optional<Instance>, kStreamCount> readers;  // the latest of each stream
};

class OrderChecker {
 public:
  absl::Status Check(std::span<const Schedule> steps) {
    updates_ = std::any_of(steps.begin(), steps.end(),
                           [](const Schedule& step) { return !step.shape.forward_only; });
    for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
      MT_RETURN_IF_ERROR(CheckStep(step, steps[step]));
    }
    return CheckUnrecorded();
  }

 private:
  struct Record {
    int step;
    VectorClock clock;
  };

  absl::Status CheckStep(int step, const Schedule& schedule) {
    for (const Operation& operation : schedule.operations) {
      MT_RETURN_IF_ERROR(Run(step, schedule.shape, operation));
    }
    return absl::OkStatus();
  }

  absl::Status Run(int step, const ScheduleShape& shape, const Operation& operation) {
    const int stream = static_cast<int>(operation.stream);
    VectorClock& clock = clocks_[stream];
    for (const EventKey& wait : operation.waits) {
      MT_RETURN_IF_ERROR(Await(step, operation, wait, clock));
    }
    const Instance instance = {step, stream, ++clock[stream], &operation};
    for (const Access& access : AccessesOf(shape, operation)) {
      MT_RETURN_IF_ERROR(Touch(instance, access, clock));
    }
    for (const EventKey& event : operation.records) {
      records_[{static_cast<int>(event.kind), event.index}] = {step, clock};
    }
    return absl::OkStatus();
  }

  absl::Status Await(int step, const Operation& operation, EventKey wait, VectorClock& clock) {
    const std::pair<int, int> key = {static_cast<int>(wait.kind), wait.index};
    const auto found = records_.find(key);
    if (CrossesSteps(wait.kind)) {
      if (found != records_.end()) {
        Join(clock, found->second.clock);
      } else {
        unrecorded_.push_back({wait, &operation});
      }
      return absl::OkStatus();
    }
    if (found == records_.end() || found->second.step != step) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", step, " ", Describe(operation), " waits for ", Describe(wait),
                       ", which nothing before it in its step records"));
    }
    Join(clock, found->second.clock);
    return absl::OkStatus();
  }

  // Waits of the first steps find no record; one that no step ever fulfils is a mistake.
  absl::Status CheckUnrecorded() const {
    for (const auto& [wait, operation] : unrecorded_) {
      const bool expected = wait.kind != EventKind::kUnitUpdated || updates_;
      if (expected && !records_.contains({static_cast<int>(wait.kind), wait.index})) {
        return absl::FailedPreconditionError(absl::StrCat(
            Describe(*operation), " waits for ", Describe(wait), ", which nothing ever records"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Touch(const Instance& instance, const Access& access, const VectorClock& clock) {
    Users& users = UsersOf(access.resource);
    MT_RETURN_IF_ERROR(RequireBefore(users.writer, instance, access.resource, clock));
    if (!access.writes) {
      users.readers[instance.stream] = instance;
      return absl::OkStatus();
    }
    for (std::optional<Instance>& reader : users.readers) {
      MT_RETURN_IF_ERROR(RequireBefore(reader, instance, access.resource, clock));
      reader.reset();
    }
    users.writer = instance;
    return absl::OkStatus();
  }

  static absl::Status RequireBefore(const std::optional<Instance>& earlier, const Instance& later,
                                    const Resource& resource, const VectorClock& clock) {
    if (!earlier.has_value() || earlier->position <= clock[earlier->stream]) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(Describe(*earlier), " and ", Describe(later),
                                                      " are not ordered, and both touch ",
                                                      Describe(resource)));
  }

  Users& UsersOf(const Resource& resource) {
    std::vector<Users>& users = users_[static_cast<int>(resource.kind)];
    if (resource.index >= static_cast<int>(users.size())) {
      users.resize(resource.index + 1);
    }
    return users[resource.index];
  }

  bool updates_ = false;  // some step updates units
  std::array<VectorClock, kStreamCount> clocks_ = {};
  std::map<std::pair<int, int>, Record> records_;  // the latest of every event
  std::vector<std::pair<EventKey, const Operation*>> unrecorded_;
  std::array<std::vector<Users>, kResourceKindCount> users_;
};

}  // namespace

absl::Status CheckOrder(std::span<const Schedule> steps) { return OrderChecker().Check(steps); }

absl::Status CheckSchedules(std::span<const Schedule> steps) {
  MT_RETURN_IF_ERROR(CheckContents(steps));
  return CheckOrder(steps);
}

absl::Status CheckSchedule(const Schedule& schedule) {
  const std::vector<Schedule> steps(3, schedule);
  return CheckSchedules(steps);
}

}  // namespace megatrain
