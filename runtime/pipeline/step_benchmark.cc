// Prints what a training step of a model's shape takes on this machine's processors, and what each
// stream did meanwhile: step_benchmark CONFIG_JSON ROWS ROW_TOKENS STEPS WEIGHT_SLOTS. Weights and
// tokens are random: the loss says nothing.

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/cpu_device.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model/model_templates.h"
#include "runtime/model/workspace_size.h"
#include "runtime/pipeline/host_math.h"
#include "runtime/pipeline/step_pipeline.h"

namespace megatrain {
namespace {

constexpr int kOptimizerThreads = 2;
constexpr int64_t kConfigLimitBytes = 1 << 20;

struct Arguments {
  std::string config_path;
  int rows;
  int row_tokens;
  int steps;
  int weight_slots;
};

struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> document_offsets = {0};
  std::vector<int32_t> loss_positions;
  std::vector<int32_t> loss_targets;

  MicroBatch View() const {
    return {tokens, positions, document_offsets, loss_positions, loss_targets};
  }
};

Rows DrawRows(const Arguments& arguments, int64_t vocab_size, std::mt19937& random) {
  Rows rows;
  for (int row = 0; row < arguments.rows; ++row) {
    for (int i = 0; i < arguments.row_tokens; ++i) {
      if (i + 1 < arguments.row_tokens) {
        rows.loss_positions.push_back(static_cast<int32_t>(rows.tokens.size()));
        rows.loss_targets.push_back(static_cast<int32_t>(random() % vocab_size));
      }
      rows.tokens.push_back(static_cast<int32_t>(random() % vocab_size));
      rows.positions.push_back(i);
    }
    rows.document_offsets.push_back(static_cast<int32_t>(rows.tokens.size()));
  }
  return rows;
}

void FillWeights(const ModelLayout& layout, HostStore& store, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (int unit = 0; unit < store.unit_count(); ++unit) {
    const HostStore::Access access = store.BeginAccess(unit);
    for (int64_t i = 0; i < layout.units[unit].element_count; ++i) {
      const SplitFloat weight = Split(normal(random));
      store.hi(unit)[i] = weight.hi;
      store.lo(unit)[i] = weight.lo;
    }
  }
}

void PrintFigures(const std::array<StreamFigures, kStreamCount>& figures) {
  for (const StreamKind stream : kAllStreams) {
    const StreamFigures& figure = figures[static_cast<int>(stream)];
    std::printf("%-9s busy %6.2f s of %6.2f s", std::string(StreamName(stream)).c_str(),
                absl::ToDoubleSeconds(figure.busy), absl::ToDoubleSeconds(figure.wall));
    for (const WaitReason reason : kAllWaitReasons) {
      if (figure.wait(reason) > absl::Milliseconds(1)) {
        std::printf(", %s %.2f s", std::string(WaitReasonName(reason)).c_str(),
                    absl::ToDoubleSeconds(figure.wait(reason)));
      }
    }
    std::printf("\n");
  }
}

absl::Status Run(const Arguments& arguments) {
  SystemClock clock;
  PosixFileSystem files;
  MT_ASSIGN_OR_RETURN(const std::string json,
                      files.ReadFile(arguments.config_path, kConfigLimitBytes));
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(json));
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  const ModelLayout layout = MakeModelLayout(config);
  MT_ASSIGN_OR_RETURN(const auto store, HostStore::Create(layout, {}));
  MT_ASSIGN_OR_RETURN(const auto templates,
                      MakeModelTemplates(config, layout, ComputeDtype::kFloat32));
  std::mt19937 random(1);
  FillWeights(layout, *store, random);
  const Rows rows = DrawRows(arguments, config.vocab_size, random);
  const int64_t tokens = static_cast<int64_t>(rows.tokens.size());
  CpuDevice device(clock);
  HostMath math;
  OptimizerPool pool(kOptimizerThreads);
  MT_ASSIGN_OR_RETURN(const auto pipeline,
                      StepPipeline::Create(
                          {device, math, *store, *templates, pool}, layout,
                          {.weight_slot_count = arguments.weight_slots,
                           .max_micro_batch_tokens = tokens,
                           .max_step_tokens = tokens,
                           .max_micro_batches = 1,
                           .workspace_bytes = WorkspaceBytes(config, ComputeDtype::kFloat32, tokens,
                                                             arguments.row_tokens, tokens)}));
  const StepInput input = {.micro_batches = {rows.View()},
                           .loss_token_count = static_cast<int64_t>(rows.loss_positions.size()),
                           .max_gradient_norm = 1.0};
  for (int step = 0; step < arguments.steps; ++step) {
    const absl::Duration start = clock.MonotonicNow();
    MT_RETURN_IF_ERROR(pipeline->SubmitStep(input));
    MT_RETURN_IF_ERROR(pipeline->WaitStep().status());
    std::printf("step %d: %.2f s to the norm\n", step + 1,
                absl::ToDoubleSeconds(clock.MonotonicNow() - start));
  }
  MT_RETURN_IF_ERROR(pipeline->Drain());
  PrintFigures(pipeline->Figures());
  return absl::OkStatus();
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s CONFIG_JSON ROWS ROW_TOKENS STEPS WEIGHT_SLOTS\n", argv[0]);
    return 2;
  }
  const absl::Status status = megatrain::Run(
      {argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5])});
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
