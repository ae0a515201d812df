#include "runtime/benchmark/benchmark_flags.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/config/shapes.h"

namespace megatrain {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 28;
constexpr int64_t kMostRowTokens = int64_t{1} << 20;
constexpr double kLeastWidth = 0.01;
constexpr double kMostWidth = 64;
constexpr double kMostGibibytes = 1 << 20;
constexpr double kMostSeconds = 1e7;

// CLI::Range lets pass what is no number.
CLI::Validator RealNumber(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        double value = 0;
        const bool is_within = absl::SimpleAtod(text, &value) && value >= least && value <= most;
        return is_within ? "" : absl::StrCat(text, " is not from ", least, " to ", most);
      },
      absl::StrCat("from ", least, " to ", most));
}

// What is left to the planner where it is not given.
void AddPlacementFlags(CLI::App& app, BenchmarkFlags& flags) {
  app.add_option("--order", flags.order, "Order of micro-batches")
      ->check(CLI::IsMember({"auto", "layer_major", "micro_batch_major"}));
  app.add_option("--keep", flags.keep, "Activations that layers keep for backward")
      ->check(CLI::IsMember({"auto", "nothing", "attention", "projections", "products", "all"}));
  app.add_option("--weights", flags.weights, "Whether the weights of all layers stay on the device")
      ->check(CLI::IsMember({"auto", "resident", "streamed"}));
  app.add_option("--device-state-units", flags.device_state_units,
                 "Units whose optimizer state is on the device; -1: the planner's choice")
      ->check(CLI::Range(-1, 1000));
  app.add_option("--device-weight-units", flags.device_weight_units,
                 "Further units whose weights and gradients stay on the device, and whose state "
                 "passes over the bus; -1: the planner's choice")
      ->check(CLI::Range(-1, 1000));
  app.add_option("--bus-update-units", flags.bus_update_units,
                 "Units that stream and are updated over the bus; -1: the planner's choice")
      ->check(CLI::Range(-1, 1000));
  app.add_option("--kept-gradient-units", flags.kept_gradient_units,
                 "Of these, units whose gradient waits for the norm on the device; -1: the "
                 "planner's choice")
      ->check(CLI::Range(-1, 1000));
  app.add_option("--host-boundary-layers", flags.host_boundary_layers,
                 "Layers whose input waits on the host for backward; -1: the planner's choice")
      ->check(CLI::Range(-1, 1000));
  app.add_option(
         "--host-kept-micro-batches", flags.host_kept_micro_batches,
         "Micro-batches of which all that layers compute waits there; -1: the planner's choice")
      ->check(CLI::Range(-1, 1000));
  app.add_option("--weight-slots", flags.weight_slots,
                 "Slots for the weights of layers that stream; 0: the planner's choice")
      ->check(CLI::Range(0, 1000));
  app.add_option(
         "--pin", flags.pin,
         "How copies reach host memory: pinned, through slabs what cannot be (auto); pinned "
         "or not at all (full); all through slabs (slabs)")
      ->check(CLI::IsMember({"auto", "full", "slabs"}));
}

}  // namespace

std::vector<std::string> Ablations() {
  return {kWithoutDoubleBuffering, kWithoutSlabPool, kWithoutOverlap, kWithoutDeviceOptimizer,
          kWithoutKeptActivations};
}

void AddBenchmarkFlags(CLI::App& app, BenchmarkFlags& flags) {
  app.add_option("--shape", flags.shape, "Shape of the model")->check(CLI::IsMember(ShapeNames()));
  app.add_option("--layers", flags.layers, "Layers; 0: the shape's own")
      ->check(CLI::Range(0, 1000));
  app.add_option("--width", flags.width, "Times that heads, hidden size and MLP are as wide")
      ->check(RealNumber(kLeastWidth, kMostWidth));
  app.add_option("--tokens", flags.tokens, "Tokens of a step")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  app.add_option("--sequence-length", flags.sequence_length, "Tokens of a row")
      ->check(CLI::Range(int64_t{1}, kMostRowTokens));
  app.add_option("--micro-batch-tokens", flags.micro_batch_tokens,
                 "Tokens of a micro-batch, cut to whole rows; 0: the planner's choice")
      ->check(CLI::Range(int64_t{0}, kMostTokens));
  app.add_option("--steps", flags.steps, "Steps that are timed")->check(CLI::Range(1, 1000000));
  app.add_option("--warm-up", flags.warm_up, "Steps before them")->check(CLI::Range(0, 1000000));
  app.add_option("--profile-steps", flags.profile_steps, "Steps after them that are traced")
      ->check(CLI::Range(0, 1000));
  app.add_option("--time-limit", flags.time_limit_seconds,
                 "Seconds from the start in which the timed steps end: fewer are done where "
                 "--steps would take longer, but at least two; 0: none")
      ->check(RealNumber(0, kMostSeconds));
  app.add_option("--hbm-limit-gib", flags.hbm_limit_gib, "Device memory to use; 0: what there is")
      ->check(RealNumber(0, kMostGibibytes));
  app.add_option("--host-limit-gib", flags.host_limit_gib, "Host memory to use; 0: what there is")
      ->check(RealNumber(0, kMostGibibytes));
  AddPlacementFlags(app, flags);
  app.add_option("--without", flags.without, "Leaves something out, to see what it is worth")
      ->delimiter(',')
      ->check(CLI::IsMember(Ablations()));
  app.add_option("--checkpoint-interval", flags.checkpoint_interval,
                 "Layers from one boundary that is kept to the next; above 1 nothing else is kept, "
                 "and so many layers stream as one piece")
      ->check(CLI::Range(1, 1000));
  app.add_option("--compute-dtype", flags.compute_dtype,
                 "Precision of products; default: bf16 on a GPU, else fp32")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option("--attention", flags.attention, "Attention's kernels")
      ->check(CLI::IsMember({"fast", "deterministic"}));
  app.add_option("--folded-store", flags.folded_store,
                 "Layers with host memory of their own, which all others share; 0: all. For shapes "
                 "larger than the host's memory: measures speed, learns nothing")
      ->check(CLI::Range(0, 1000));
  app.add_option("--threads", flags.threads, "Threads of computation and optimizer; 0: all")
      ->check(CLI::Range(0, 1024));
  app.add_option("--seed", flags.seed, "Of weights and tokens");
  app.add_option("--matmul-choices", flags.matmul_choices,
                 "File of the fastest algorithms for matrix products on a GPU, measured and added "
                 "where it lacks them; none: the library's first choices");
  app.add_option("--machine", flags.machine,
                 "File of what was measured of this machine, for the prediction; measured and "
                 "written when it is not there; none: an H200's speeds");
  app.add_option("--commit", flags.commit, "Commit of this program, for the record");
  app.add_option("--output", flags.output, "File to append the result to, as a line of JSON");
  app.add_option("--timeline", flags.timeline,
                 "File to write the traced steps to, in the trace event format");
}

}  // namespace megatrain
