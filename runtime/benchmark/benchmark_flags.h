#ifndef RUNTIME_BENCHMARK_BENCHMARK_FLAGS_H_
#define RUNTIME_BENCHMARK_BENCHMARK_FLAGS_H_

#include <cstdint>
#include <string>

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
  double hbm_limit_gib = 0;  // 0: what there is
  std::string order = "auto";
  std::string keep = "auto";
  std::string weights = "auto";
  int device_state_units = -1;  // -1: chosen
  std::string compute_dtype;    // "": the backend's own
  std::string attention = "fast";
  int folded_store = 0;  // layers that have memory of their own; 0: all
  int threads = 0;       // 0: one a processor
  uint64_t seed = 1;
  std::string matmul_choices;  // a file; "": first choices
  std::string commit;
  std::string output;    // a file to append a JSON line to
  std::string timeline;  // a file to write the traced steps to
  std::string command;   // the whole line, for the record
};

// What the program is asked for; `app` and `flags` outlive parsing.
void AddBenchmarkFlags(CLI::App& app, BenchmarkFlags& flags);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_BENCHMARK_FLAGS_H_
