#include "runtime/planner/step_simulation.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

// Kernels of updates and of layers side by side share the device: together they come along a
// little faster than one after the other.
constexpr double kSharedDeviceRate = 0.55;

// What layers' kernels lose of their speed to each of copies up, copies down and updates on the
// host beside them: the device's memory, its power, launches that come late. Measured of a 7B whose
// micro-batches of 8,192 to 16,384 tokens leave 29 to 20 units' states on an H200 (docs/results).
constexpr double kInterference = 0.05;

constexpr int kEventKindCount = static_cast<int>(EventKind::kResult) + 1;

// An operation that must be over, by its place in the window.
struct Dependency {
  int node;
  WaitReason reason;
};

struct Node {
  int stream;
  Resource resource;
  double seconds;
  double host_bytes_per_second;
  int first_dependency;  // of Window::dependencies; the next node's is their end
};

// What lies between the verdict on one step and that on the next, in issue order: the first one's
// updates, then all of the second but its own. At the verdict all that a step did before is over,
// so that every window is as the last one.
struct Window {
  std::vector<Node> nodes;  // and one that ends the last one's dependencies
  std::vector<Dependency> dependencies;

  int size() const { return static_cast<int>(nodes.size()) - 1; }
};

// The operation of the window that records each event last, in issue order.
class Recorders {
 public:
  void Record(const Operation& operation, int node) {
    for (const EventKey& event : operation.records) {
      std::vector<int>& latest = latest_[static_cast<int>(event.kind)];
      if (event.index >= static_cast<int>(latest.size())) {
        latest.resize(event.index + 1, -1);
      }
      latest[event.index] = node;
    }
  }

  // -1 when nothing has: if ever, it was before the window.
  int Find(const EventKey& event) const {
    const std::vector<int>& latest = latest_[static_cast<int>(event.kind)];
    return event.index < static_cast<int>(latest.size()) ? latest[event.index] : -1;
  }

 private:
  std::array<std::vector<int>, kEventKindCount> latest_;  // by kind and index
};

class WindowBuilder {
 public:
  explicit WindowBuilder(const std::function<OperationCost(const Operation&)>& cost_of)
      : cost_of_(cost_of) {}

  Window Build(const Schedule& schedule) && {
    const auto norm = std::find_if(
        schedule.operations.begin(), schedule.operations.end(),
        [](const Operation& operation) { return operation.kind == OperationKind::kNorm; });
    MT_CHECK(norm != schedule.operations.end());
    window_.nodes.reserve(schedule.operations.size() + 1);
    std::for_each(norm + 1, schedule.operations.end(), [&](const auto& update) { Add(update); });
    std::for_each(schedule.operations.begin(), norm + 1, [&](const auto& other) { Add(other); });
    window_.nodes.push_back({.first_dependency = DependencyCount()});
    return std::move(window_);
  }

 private:
  int DependencyCount() const { return static_cast<int>(window_.dependencies.size()); }

  void Add(const Operation& operation) {
    const OperationCost cost = cost_of_(operation);
    const int node = static_cast<int>(window_.nodes.size());
    window_.nodes.push_back(
        {.stream = static_cast<int>(operation.stream),
         .resource = cost.resource,
         .seconds = cost.seconds,
         .host_bytes_per_second = cost.seconds > 0 ? cost.host_bytes / cost.seconds : 0,
         .first_dependency = DependencyCount()});
    for (const EventKey& event : operation.waits) {
      if (const int recorder = recorders_.Find(event); recorder >= 0) {
        window_.dependencies.push_back({recorder, ReasonOf(event.kind)});
      }
    }
    recorders_.Record(operation, node);
  }

  const std::function<OperationCost(const Operation&)>& cost_of_;
  Recorders recorders_;
  Window window_;
};

// The longest chain of operations that follow each other: no step is shorter.
double LongestChain(const Window& window) {
  std::vector<double> ends(window.size());
  std::array<double, kStreamCount> stream_ends = {};
  for (int i = 0; i < window.size(); ++i) {
    const Node& node = window.nodes[i];
    double start = stream_ends[node.stream];
    for (int d = node.first_dependency; d < window.nodes[i + 1].first_dependency; ++d) {
      start = std::max(start, ends[window.dependencies[d].node]);
    }
    stream_ends[node.stream] = ends[i] = start + node.seconds;
  }
  return ends.back();
}

// By Resource: how long it is busy at least.
std::array<double, kResourceCount> WorkOf(const Window& window) {
  std::array<double, kResourceCount> seconds = {};
  for (int i = 0; i < window.size(); ++i) {
    seconds[static_cast<int>(window.nodes[i].resource)] += window.nodes[i].seconds;
  }
  return seconds;
}

// How long what shares a thing keeps it busy: no step is shorter.
double MostWork(const Window& window, const MachineSpeeds& speeds) {
  const std::array<double, kResourceCount> work = WorkOf(window);
  double host_bytes = 0;
  for (int i = 0; i < window.size(); ++i) {
    host_bytes += window.nodes[i].seconds * window.nodes[i].host_bytes_per_second;
  }
  const double up = work[static_cast<int>(Resource::kBusUp)];
  const double down = work[static_cast<int>(Resource::kBusDown)];
  return std::max(
      {host_bytes / speeds.host_memory_bytes, up, down,
       (up * speeds.bus_up_bytes + down * speeds.bus_down_bytes) /
           std::max({2 * speeds.bus_both_bytes, speeds.bus_up_bytes, speeds.bus_down_bytes})});
}

class Simulation {
 public:
  Simulation(const Window& window, const MachineSpeeds& speeds)
      : window_(window), speeds_(speeds), done_(window.size(), 0) {
    for (int i = 0; i < window.size(); ++i) {
      streams_[window.nodes[i].stream].nodes.push_back(i);
    }
    for (Stream& stream : streams_) {
      Begin(stream);
    }
    for (const int i : compute().nodes) {
      left_compute_seconds_ += window.nodes[i].seconds;
    }
  }

  // Absent when the step takes `limit_seconds` or longer.
  std::optional<SimulatedStep> Run(double limit_seconds) {
    while (done_.back() == 0) {
      if (result_.seconds + left_compute_seconds_ >= limit_seconds) {
        return std::nullopt;
      }
      StartWhatCan();
      SetRates();
      Advance();
    }
    return result_;
  }

 private:
  struct Stream {
    std::vector<int> nodes;
    size_t next = 0;
    const Node* node = nullptr;  // of the next one; null at the end
    int dependency = 0;          // the first that is not known to be met
    bool runs = false;
    double left_seconds = 0;  // of what runs, at its own speed
    double rate = 0;
    WaitReason reason = WaitReason::kNoWork;  // when it does not run
  };

  const Stream& compute() const { return streams_[static_cast<int>(StreamKind::kCompute)]; }

  // Turns to the stream's next operation.
  void Begin(Stream& stream) const {
    stream.reason = WaitReason::kNoWork;
    stream.node = nullptr;
    if (stream.next < stream.nodes.size()) {
      stream.node = &window_.nodes[stream.nodes[stream.next]];
      stream.dependency = stream.node->first_dependency;
    }
  }

  void StartWhatCan() {
    for (Stream& stream : streams_) {
      if (!stream.runs && stream.node != nullptr && IsReady(stream)) {
        stream.runs = true;
        stream.left_seconds = stream.node->seconds;
      }
    }
  }

  bool IsReady(Stream& stream) const {
    for (; stream.dependency < (stream.node + 1)->first_dependency; ++stream.dependency) {
      const Dependency& dependency = window_.dependencies[stream.dependency];
      if (done_[dependency.node] == 0) {
        stream.reason = dependency.reason;
        return false;
      }
    }
    return true;
  }

  // Of the speed that an operation has alone, when so many run by resource.
  double RateOf(Resource resource, const std::array<int, kResourceCount>& running) const {
    const auto runs = [&](Resource other) { return running[static_cast<int>(other)] > 0; };
    const int sharing = running[static_cast<int>(resource)];
    switch (resource) {
      case Resource::kBusUp:
        return (runs(Resource::kBusDown) ? speeds_.bus_both_bytes / speeds_.bus_up_bytes : 1.0) /
               sharing;
      case Resource::kBusDown:
        return (runs(Resource::kBusUp) ? speeds_.bus_both_bytes / speeds_.bus_down_bytes : 1.0) /
               sharing;
      case Resource::kCompute:
        return (runs(Resource::kDeviceUpdates) ? kSharedDeviceRate : 1) *
               (1 - kInterference * (runs(Resource::kBusUp) + runs(Resource::kBusDown) +
                                     runs(Resource::kHostUpdates)));
      case Resource::kDeviceUpdates:
        return runs(Resource::kCompute) ? kSharedDeviceRate : 1;
      case Resource::kHostUpdates:
        return 1;
    }
    return 1;
  }

  void SetRates() {
    std::array<int, kResourceCount> running = {};
    for (const Stream& stream : streams_) {
      if (stream.runs) {
        ++running[static_cast<int>(stream.node->resource)];
      }
    }
    double host_bytes = 0;  // a second that all want
    for (Stream& stream : streams_) {
      if (stream.runs) {
        stream.rate = RateOf(stream.node->resource, running);
        host_bytes += stream.node->host_bytes_per_second * stream.rate;
      }
    }
    if (host_bytes <= speeds_.host_memory_bytes) {
      return;
    }
    for (Stream& stream : streams_) {
      if (stream.runs && stream.node->host_bytes_per_second > 0) {
        stream.rate *= speeds_.host_memory_bytes / host_bytes;
      }
    }
  }

  // To the end of the operation that is over first.
  void Advance() {
    const Stream* first = nullptr;
    double seconds = std::numeric_limits<double>::infinity();
    for (const Stream& stream : streams_) {
      if (stream.runs && stream.left_seconds < seconds * stream.rate) {
        first = &stream;
        seconds = stream.left_seconds / stream.rate;
      }
    }
    MT_CHECK(first != nullptr);  // a checked schedule has no circle
    Account(seconds);
    left_compute_seconds_ -= compute().runs ? seconds * compute().rate : 0;
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

  // A resource that streams share is as busy as if one had it.
  void Account(double seconds) {
    result_.seconds += seconds;
    std::array<bool, kResourceCount> busy = {};
    for (const Stream& stream : streams_) {
      if (stream.runs) {
        busy[static_cast<int>(stream.node->resource)] = true;
      }
    }
    for (int resource = 0; resource < kResourceCount; ++resource) {
      result_.busy_seconds[resource] += busy[resource] ? seconds : 0;
    }
    if (!compute().runs) {
      result_.compute_waits[static_cast<int>(compute().reason)] += seconds;
    }
  }

  void Finish(Stream& stream) {
    done_[stream.nodes[stream.next++]] = 1;
    stream.runs = false;
    Begin(stream);
  }

  const Window& window_;
  const MachineSpeeds& speeds_;
  std::vector<char> done_;  // by node
  std::array<Stream, kStreamCount> streams_;
  double left_compute_seconds_ = 0;  // were the device not shared
  SimulatedStep result_;
};

}  // namespace

std::optional<SimulatedStep> SimulateStepBelow(
    const Schedule& schedule, const std::function<OperationCost(const Operation&)>& cost_of,
    const MachineSpeeds& speeds, double limit_seconds) {
  const Window window = WindowBuilder(cost_of).Build(schedule);
  if (MostWork(window, speeds) >= limit_seconds || LongestChain(window) >= limit_seconds) {
    return std::nullopt;
  }
  return Simulation(window, speeds).Run(limit_seconds);
}

SimulatedStep SimulateStep(const Schedule& schedule,
                           const std::function<OperationCost(const Operation&)>& cost_of,
                           const MachineSpeeds& speeds) {
  return *SimulateStepBelow(schedule, cost_of, speeds, std::numeric_limits<double>::infinity());
}

}  // namespace megatrain
