// What a benchmark measured, for people and for programs. Pure functions.

#ifndef RUNTIME_BENCHMARK_RESULT_LINE_H_
#define RUNTIME_BENCHMARK_RESULT_LINE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/benchmark/timeline.h"
#include "runtime/device/stream_figures.h"
#include "runtime/planner/step_simulation.h"

namespace megatrain {

// What was run; text as the flags spell it.
struct BenchmarkSetting {
  std::string shape;
  int64_t layers = 0;
  double width = 1;
  int64_t parameters = 0;
  int64_t tokens_per_step = 0;
  int64_t sequence_length = 0;
  int64_t loss_tokens_per_step = 0;
  int64_t micro_batch_tokens = 0;
  int64_t warm_up_steps = 0;
  std::optional<double> hbm_limit_gib;
  std::optional<double> host_limit_gib;
  std::string compute_dtype;
  std::optional<double> matmul_flops;  // a second that products alone reach, as measured
  std::string attention;
  std::string order;
  std::string keep;
  bool resident_weights = false;
  int64_t weight_slots = 0;
  int64_t device_state_units = 0;   // of `units`, as the next two
  int64_t device_weight_units = 0;  // whose states pass over the bus
  int64_t bus_update_units = 0;     // that stream and are updated over the bus
  int64_t kept_gradient_units = 0;  // of these: the gradient waits on the device
  int64_t units = 0;
  int64_t host_boundary_layers = 0;
  int64_t host_kept_micro_batches = 0;
  std::string pin;
  int64_t checkpoint_interval = 1;
  std::vector<std::string> without;
  bool folded = false;
  std::string backend;
  std::string machine;
  std::string commit;
  std::string command;
};

// What came of it. Durations are of all timed steps together, to the end of their updates.
struct BenchmarkFigures {
  int64_t steps = 0;  // timed
  absl::Duration elapsed;
  std::optional<absl::Duration> steady_step;        // from result to result: without the end of all
  std::array<StreamFigures, kStreamCount> streams;  // what they grew by
  double model_flops_per_step = 0;
  double hardware_flops_per_step = 0;  // with what is computed twice
  SimulatedStep predicted;             // all zeros where nothing is predicted
  bool is_predicted() const { return predicted.seconds > 0; }
  double loss = 0;  // of the last step; of random tokens, it says only that the run was sane
  int64_t planned_device_bytes = 0;
  int64_t peak_device_bytes = 0;  // 0: the device is the host
  int64_t planned_host_bytes = 0;
  int64_t peak_host_bytes = 0;
  bool uses_slabs = false;  // for what steps copy and is not pinned
  // Of further steps, traced: kernels, and the wall time they are held against.
  struct Traced {
    KernelTime kernels;
    absl::Duration elapsed;
  };
  std::optional<Traced> traced;
};

// A line of JSON without its newline; docs/GPU.md lists the keys.
std::string ToJsonLine(const BenchmarkSetting& setting, const BenchmarkFigures& figures);

// The same in a few lines.
std::string ToText(const BenchmarkSetting& setting, const BenchmarkFigures& figures);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_RESULT_LINE_H_
