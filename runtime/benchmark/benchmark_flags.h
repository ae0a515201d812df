#ifndef RUNTIME_BENCHMARK_BENCHMARK_FLAGS_H_
#define RUNTIME_BENCHMARK_BENCHMARK_FLAGS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace megatrain {

// One configuration, as the flags spell it; what is not given is chosen by the planner.
struct BenchmarkFlags {
  std::string shape = "qwen2.5-7b";
  int64_t layers = 0;  // 0: the shape's own
  double width = 1;
  int64_t tokens = 65536;  // a step
  int64_t sequence_length = 1024;
  int64_t micro_batch_tokens = 0;
  int64_t steps = 10;
  int64_t warm_up = 3;
  int64_t profile_steps = 0;
  double time_limit_seconds = 0;  // from the start to the end of the timed steps; 0: none
  double hbm_limit_gib = 0;       // 0: what there is
  double host_limit_gib = 0;      // the same
  std::string order = "auto";
  std::string keep = "auto";
  std::string weights = "auto";
  int device_state_units = -1;       // -1: chosen, as below
  int device_weight_units = -1;      // whose states alone pass over the bus
  int bus_update_units = -1;         // of those that stream
  int kept_gradient_units = -1;      // of these: the gradient waits on the device
  int host_boundary_layers = -1;     // whose inputs wait on the host for backward
  int host_kept_micro_batches = -1;  // of which layers keep everything there
  int weight_slots = 0;              // 0: chosen
  std::string pin = "auto";
  int checkpoint_interval = 1;       // layers from one kept boundary to the next
  std::vector<std::string> without;  // what is left out, to see what it is worth
  std::string compute_dtype;         // "": the backend's own
  std::string attention = "fast";
  int folded_store = 0;  // layers that have memory of their own; 0: all
  int threads = 0;       // 0: one a processor
  uint64_t seed = 1;
  std::string matmul_choices;  // a file; "": first choices
  std::string machine;         // a file that keeps what was measured; "": an H200's speeds
  std::string commit;
  std::string output;    // a file to append a JSON line to
  std::string timeline;  // a file to write the traced steps to
  std::string command;   // the whole line, for the record

  bool leaves_out(const std::string& ablation) const {
    return std::find(without.begin(), without.end(), ablation) != without.end();
  }
};

// What --without leaves out: all weight slots but one, with all else as chosen; a second gradient
// slot; the optimizer's work beside the next step; every update on the device; whatever saves
// computing forward again.
inline constexpr char kWithoutDoubleBuffering[] = "double_buffering";
inline constexpr char kWithoutSlabPool[] = "slab_pool";
inline constexpr char kWithoutOverlap[] = "optimizer_overlap";
inline constexpr char kWithoutDeviceOptimizer[] = "device_optimizer";
inline constexpr char kWithoutKeptActivations[] = "kept_activations";
std::vector<std::string> Ablations();

// What the program is asked for; `app` and `flags` outlive parsing.
void AddBenchmarkFlags(CLI::App& app, BenchmarkFlags& flags);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_BENCHMARK_FLAGS_H_
