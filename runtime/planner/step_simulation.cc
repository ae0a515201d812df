#include "runtime/planner/step_simulation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

// The first has no updates beside it, the second is as all later ones; its window, from the first
// verdict to the second, is measured on the third to let it settle.
constexpr int kSteps = 3;

// Kernels of updates and of layers side by side share the device: together they come along a
// little faster than one after the other.
constexpr double kSharedDeviceRate = 0.55;

// Another operation that must be over, of the same step or of the one before.
struct Dependency {
  int operation;
  int steps_before;
  WaitReason reason;
};

struct Node {
  StreamKind stream;
  OperationCost cost;
  bool is_verdict;
  std::vector<Dependency> dependencies;
};

// The operation that records each event last, in issue order.
class Recorders {
 public:
  void Record(const Operation& operation, int index) {
    for (const EventKey& event : operation.records) {
      latest_[{event.kind, event.index}] = index;
    }
  }

  // -1 when nothing has.
  int Find(const EventKey& event) const {
    const auto found = latest_.find({event.kind, event.index});
    return found == latest_.end() ? -1 : found->second;
  }

 private:
  std::map<std::pair<EventKind, int>, int> latest_;
};

std::vector<Node> MakeNodes(const Schedule& schedule,
                            const std::function<OperationCost(const Operation&)>& cost_of) {
  Recorders before;  // of the whole step before
  for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i) {
    before.Record(schedule.operations[i], i);
  }
  Recorders now;
  std::vector<Node> nodes;
  nodes.reserve(schedule.operations.size());
  for (const Operation& operation : schedule.operations) {
    Node node{.stream = operation.stream,
              .cost = cost_of(operation),
              .is_verdict = operation.kind == OperationKind::kNorm,
              .dependencies = {}};
    for (const EventKey& event : operation.waits) {
      const int same = now.Find(event);
      const int earlier = before.Find(event);
      if (same >= 0) {
        node.dependencies.push_back({same, 0, ReasonOf(event.kind)});
      } else if (earlier >= 0) {
        node.dependencies.push_back({earlier, 1, ReasonOf(event.kind)});
      }
    }
    now.Record(operation, static_cast<int>(nodes.size()));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

class Simulation {
 public:
  Simulation(std::vector<Node> nodes, const MachineSpeeds& speeds)
      : nodes_(std::move(nodes)), speeds_(speeds), done_(nodes_.size() * kSteps, false) {
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      streams_[static_cast<int>(nodes_[i].stream)].operations.push_back(i);
    }
  }

  SimulatedStep Run() {
    while (verdicts_ < kSteps) {
      StartWhatCan();
      SetRates();
      Advance();
    }
    return result_;
  }

 private:
  struct Stream {
    std::vector<int> operations;  // of one step
    int next = 0;                 // of all steps'
    bool runs = false;
    double left_seconds = 0;  // of what runs, at its own speed
    double rate = 0;
    WaitReason reason = WaitReason::kNoWork;  // when it does not run
  };

  int StepOf(const Stream& stream) const {
    return stream.next / static_cast<int>(stream.operations.size());
  }
  int IndexOf(const Stream& stream) const {
    return stream.operations[stream.next % stream.operations.size()];
  }
  const OperationCost& CostOf(const Stream& stream) const { return nodes_[IndexOf(stream)].cost; }

  void StartWhatCan() {
    for (Stream& stream : streams_) {
      if (stream.runs || stream.operations.empty() || StepOf(stream) >= kSteps) {
        continue;
      }
      const Dependency* unmet = FirstUnmet(stream);
      stream.runs = unmet == nullptr;
      stream.left_seconds = CostOf(stream).seconds;
      stream.reason = unmet == nullptr ? WaitReason::kNoWork : unmet->reason;
    }
  }

  const Dependency* FirstUnmet(const Stream& stream) const {
    const int step = StepOf(stream);
    for (const Dependency& dependency : nodes_[IndexOf(stream)].dependencies) {
      const int of_step = step - dependency.steps_before;
      if (of_step >= 0 && !done_[of_step * nodes_.size() + dependency.operation]) {
        return &dependency;
      }
    }
    return nullptr;
  }

  int Running(Resource resource) const {
    return static_cast<int>(std::count_if(
        streams_.begin(), streams_.end(),
        [&](const Stream& stream) { return stream.runs && CostOf(stream).resource == resource; }));
  }

  // Of the speed that an operation has alone.
  double RateOf(Resource resource) const {
    switch (resource) {
      case Resource::kBusUp:
        return (Running(Resource::kBusDown) > 0 ? speeds_.bus_both_bytes / speeds_.bus_up_bytes
                                                : 1.0) /
               Running(resource);
      case Resource::kBusDown:
        return (Running(Resource::kBusUp) > 0 ? speeds_.bus_both_bytes / speeds_.bus_down_bytes
                                              : 1.0) /
               Running(resource);
      case Resource::kCompute:
        return Running(Resource::kDeviceUpdates) > 0 ? kSharedDeviceRate : 1;
      case Resource::kDeviceUpdates:
        return Running(Resource::kCompute) > 0 ? kSharedDeviceRate : 1;
      case Resource::kHostUpdates:
        return 1;
    }
    return 1;
  }

  void SetRates() {
    double host_bytes = 0;  // a second that all want
    for (Stream& stream : streams_) {
      if (stream.runs) {
        stream.rate = RateOf(CostOf(stream).resource);
        host_bytes += HostBytesPerSecond(stream);
      }
    }
    if (host_bytes <= speeds_.host_memory_bytes) {
      return;
    }
    for (Stream& stream : streams_) {
      if (stream.runs && CostOf(stream).host_bytes > 0) {
        stream.rate *= speeds_.host_memory_bytes / host_bytes;
      }
    }
  }

  double HostBytesPerSecond(const Stream& stream) const {
    const OperationCost& cost = CostOf(stream);
    return cost.seconds > 0 ? cost.host_bytes / cost.seconds * stream.rate : 0;
  }

  // To the end of the operation that is over first.
  void Advance() {
    const Stream* first = nullptr;
    double seconds = std::numeric_limits<double>::infinity();
    for (const Stream& stream : streams_) {
      if (stream.runs && stream.left_seconds / stream.rate < seconds) {
        first = &stream;
        seconds = stream.left_seconds / stream.rate;
      }
    }
    MT_CHECK(first != nullptr);  // a checked schedule has no circle
    const bool measured = verdicts_ == kSteps - 1;
    if (measured) {
      Account(seconds);
    }
    for (Stream& stream : streams_) {
      if (!stream.runs) {
        continue;
      }
      stream.left_seconds -= seconds * stream.rate;
      if (&stream == first || stream.left_seconds <= 0) {
        Finish(stream);
      }
    }
  }

  void Account(double seconds) {
    result_.seconds += seconds;
    for (const Stream& stream : streams_) {
      if (stream.runs) {
        result_.busy_seconds[static_cast<int>(CostOf(stream).resource)] += seconds;
      }
    }
    const Stream& compute = streams_[static_cast<int>(StreamKind::kCompute)];
    if (!compute.runs) {
      result_.compute_waits[static_cast<int>(compute.reason)] += seconds;
    }
  }

  void Finish(Stream& stream) {
    const int index = IndexOf(stream);
    done_[StepOf(stream) * nodes_.size() + index] = true;
    verdicts_ += nodes_[index].is_verdict ? 1 : 0;
    stream.runs = false;
    ++stream.next;
  }

  const std::vector<Node> nodes_;
  const MachineSpeeds& speeds_;
  std::vector<bool> done_;  // by step and operation
  std::array<Stream, kStreamCount> streams_;
  int verdicts_ = 0;
  SimulatedStep result_;
};

}  // namespace

SimulatedStep SimulateStep(const Schedule& schedule,
                           const std::function<OperationCost(const Operation&)>& cost_of,
                           const MachineSpeeds& speeds) {
  return Simulation(MakeNodes(schedule, cost_of), speeds).Run();
}

}  // namespace megatrain
