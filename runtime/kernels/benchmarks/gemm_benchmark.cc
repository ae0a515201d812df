// Speed of the matrix products and of the attention of one layer of a model and its head, on random
// numbers: cuBLASLt's first choice beside its next ones, cuDNN beside our own kernels. And what the
// layer's products reach one after the other without a pause, at the chip's power limit.

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/shapes.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/benchmarks/measurement.h"
#include "runtime/kernels/matmul_call.h"
#include "runtime/kernels/matmul_choices.h"
#include "runtime/kernels/matmul_plan.h"
#include "runtime/kernels/matmul_scratch.h"
#include "runtime/kernels/matmul_timer.h"
#include "runtime/kernels/packed_attention.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/matmul_samples.h"

namespace megatrain {
namespace {

constexpr auto kBfloat16 = ComputeDtype::kBfloat16;
constexpr float kDeviation = 0.5f;

void PrintSpeeds(const char* how, const MatmulProblem& problem,
                 const std::vector<double>& seconds) {
  std::printf("  %-8s", how);
  for (const double each : seconds) {
    std::printf(" %4.0f", 1e-12 * problem.Operations() / each);
  }
  std::printf(" | choice %d\n", ChooseMatmul(seconds) + 1);
  std::fflush(stdout);
}

// TFLOP/s of a product with the heuristic's first choices, in its order: all in turns at one clock,
// then those near the best each for itself. 0 where it was left out. Returns the latter's choice.
absl::StatusOr<int> PrintProduct(const MatmulSample& sample, MatmulTimer& timer) {
  constexpr MatmulTiming kInTurns{.warm_up_seconds = 0.1, .rounds = 8};
  constexpr MatmulTiming kLasting{
      .rounds = MatmulTimer::kTrialRounds, .drop_factor = 1.05, .lasting_seconds = 0.3};
  const MatmulProblem& problem = sample.problem;
  MT_ASSIGN_OR_RETURN(const std::vector<double> in_turns, timer.Time(sample, kInTurns));
  MT_ASSIGN_OR_RETURN(const std::vector<double> lasting, timer.Time(sample, kLasting));
  std::printf("%s: m %" PRId64 " n %" PRId64 " k %" PRId64 " beta %d\n", sample.name.c_str(),
              problem.m, problem.n, problem.k, static_cast<int>(sample.accumulates));
  PrintSpeeds("in turns", problem, in_turns);
  PrintSpeeds("lasting", problem, lasting);
  return ChooseMatmul(lasting);
}

// A layer's products one after the other. Factors are random numbers.
class ProductSequence {
 public:
  explicit ProductSequence(const std::vector<MatmulSample>& samples) {
    Check(CublasStatus(cublasLtCreate(&handle_), "cublasLtCreate"));
    int64_t most_a = 0;
    int64_t most_b = 0;
    for (const MatmulSample& sample : samples) {
      const MatmulProblem& problem = sample.problem;
      most_a = std::max(most_a, problem.ElementsOfA());
      most_b = std::max(most_b, problem.ElementsOfB());
      const int64_t size_bytes = problem.ElementsOfD() * SizeBytes(problem.output_dtype);
      products_.push_back({.sample = sample, .output = AllocateArray<char>(size_bytes)});
      Check(cudaMemset(products_.back().output.get(), 0, size_bytes), "cudaMemset");
    }
    a_ = NormalNumbers(most_a, kDeviation);
    b_ = NormalNumbers(most_b, kDeviation);
  }
  ~ProductSequence() { cublasLtDestroy(handle_); }
  ProductSequence(const ProductSequence&) = delete;
  ProductSequence& operator=(const ProductSequence&) = delete;

  // What they reach in some three seconds without a pause; first choices where `choices` has none.
  absl::StatusOr<double> TeraflopsPerSecond(const MatmulChoices& choices) {
    double operations = 0;
    for (Product& product : products_) {
      const MatmulProblem& problem = product.sample.problem;
      MT_ASSIGN_OR_RETURN(const std::vector<MatmulPlan> plans,
                          FindMatmulPlans(handle_, problem, kMatmulCandidates));
      const auto choice = choices.find(problem);
      product.plan = plans[choice == choices.end() ? 0 : choice->second];
      operations += problem.Operations();
    }
    constexpr double kLaunchSeconds = 0.15;
    const double pass_seconds = MedianSeconds([&] { return Run(1); });
    const int passes = static_cast<int>(std::ceil(kLaunchSeconds / pass_seconds));
    return 1e-12 * operations * passes / MedianSeconds([&] { return Run(passes); });
  }

 private:
  struct Product {
    MatmulSample sample;
    DeviceArray<char> output;
    MatmulPlan plan = {};
  };

  absl::Status Run(int passes) {
    for (int pass = 0; pass < passes; ++pass) {
      for (const auto& [sample, output, plan] : products_) {
        const MatmulOperands operands{.a = a_.get(),
                                      .b = b_.get(),
                                      .c = output.get(),
                                      .d = output.get(),
                                      .bias = sample.problem.has_bias ? a_.get() : nullptr,
                                      .beta = sample.accumulates ? 1.0f : 0.0f};
        MT_RETURN_IF_ERROR(RunMatmul(handle_, plan, operands, scratch_.get(), nullptr));
      }
    }
    return absl::OkStatus();
  }

  cublasLtHandle_t handle_ = nullptr;
  DeviceArray<__nv_bfloat16> a_;
  DeviceArray<__nv_bfloat16> b_;
  std::vector<Product> products_;
  const DeviceArray<char> scratch_ = AllocateArray<char>(kMatmulScratchBytes);
};

absl::Status PrintSequence(const std::vector<MatmulSample>& samples, const MatmulChoices& choices) {
  ProductSequence sequence(samples);
  MT_ASSIGN_OR_RETURN(const double first, sequence.TeraflopsPerSecond({}));
  MT_ASSIGN_OR_RETURN(const double chosen, sequence.TeraflopsPerSecond(choices));
  std::printf("a layer's products one after the other: first choices %.0f, lasting choices %.0f\n",
              first, chosen);
  std::fflush(stdout);
  return absl::OkStatus();
}

// The products of a micro-batch of documents of 1,024 tokens.
absl::Status PrintProducts(const ModelConfig& config, int64_t tokens) {
  std::printf("%" PRId64 " tokens: TFLOP/s of the heuristic's first %d choices\n", tokens,
              kMatmulCandidates);
  const MicroBatchLimits limits{
      .tokens = tokens, .document_tokens = 1024, .documents = std::max<int64_t>(tokens / 1024, 1)};
  MT_ASSIGN_OR_RETURN(
      const std::vector<MatmulSample> samples,
      MatmulSamplesOf(MakeCudaShape(config, kBfloat16, AttentionMode::kFast, tokens),
                      config.qkv_bias, limits));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<MatmulTimer> timer, MatmulTimer::Create(samples));
  std::vector<MatmulSample> layer;
  MatmulChoices choices;
  for (const MatmulSample& sample : samples) {
    MT_ASSIGN_OR_RETURN(choices[sample.problem], PrintProduct(sample, *timer));
    if (!sample.name.starts_with("head")) {
      layer.push_back(sample);
    }
  }
  timer.reset();  // gives its memory back
  return PrintSequence(layer, choices);
}

// Documents of one length, with a model's heads; the last of them shorter by `missing` tokens.
struct AttentionCase {
  const char* name;
  const ModelConfig& config;
  int64_t documents;
  int64_t length;
  int64_t missing;
  AttentionMode mode;
  ComputeDtype dtype;

  AttentionCounts Counts() const {
    return {.tokens = documents * length - missing, .documents = documents, .longest = length};
  }
  AttentionShape Shape() const {
    return {.max_tokens = documents * length,
            .heads = static_cast<int>(config.head_count),
            .kv_heads = static_cast<int>(config.kv_head_count),
            .head_dim = static_cast<int>(config.head_dim),
            .dtype = dtype,
            .mode = mode};
  }
};

DeviceArray<char> DeviceTables(const AttentionCase& work) {
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i <= work.documents; ++i) {
    offsets.push_back(static_cast<int32_t>(std::min(i * work.length, work.Counts().tokens)));
  }
  std::vector<char> tables(AttentionTableBytes(work.Shape(), offsets.back(), work.documents));
  FillAttentionTables(work.Shape(), offsets, tables.data());
  return UploadRepeated(tables, std::ssize(tables));
}

absl::Status TimeAttention(const AttentionCase& work, const AttentionTensors& tensors,
                           const AttentionBatch& batch, const AttentionContext& context) {
  const AttentionShape shape = work.Shape();
  MT_ASSIGN_OR_RETURN(const auto attention, MakePackedAttention(shape));
  MT_RETURN_IF_ERROR(attention->Prepare(batch.counts));
  const double forward = MedianSeconds([&] { return attention->Forward(tensors, batch, context); });
  const double backward =
      MedianSeconds([&] { return attention->Backward(tensors, batch, context); });
  const double flop =
      2.0 * static_cast<double>(batch.counts.tokens * work.length * shape.OutWidth());
  std::printf("attention %-18s %" PRId64 " x %" PRId64
              " %-6s | forward %6.1f backward %6.1f us"
              " | forward %6.1f backward %6.1f TFLOP/s\n",
              work.name, work.documents, work.length, work.missing == 0 ? "even" : "uneven",
              1e6 * forward, 1e6 * backward, 1e-12 * flop / forward, 2.5e-12 * flop / backward);
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status PrintAttention(const AttentionCase& work) {
  const AttentionShape shape = work.Shape();
  const int64_t tokens = shape.max_tokens;
  const int64_t halves = SizeBytes(work.dtype) / 2;  // two bf16 numbers make a harmless fp32 one
  const auto tables = DeviceTables(work);
  const auto qkv = NormalNumbers(tokens * shape.QkvWidth() * halves, kDeviation);
  const auto out = NormalNumbers(tokens * shape.OutWidth() * halves, kDeviation);
  const auto log_sum_exp = AllocateArray<float>(tokens * shape.heads);
  const auto out_gradient = NormalNumbers(tokens * shape.OutWidth() * halves, kDeviation);
  const auto qkv_gradient = NormalNumbers(tokens * shape.QkvWidth() * halves, kDeviation);
  const auto scratch = AllocateArray<char>(AttentionScratchBytes(shape));
  return TimeAttention(work,
                       {.qkv = qkv.get(),
                        .out = out.get(),
                        .log_sum_exp = log_sum_exp.get(),
                        .out_gradient = out_gradient.get(),
                        .qkv_gradient = qkv_gradient.get()},
                       {.counts = work.Counts(), .tables = tables.get()}, {scratch.get(), nullptr});
}

// Beside each even micro-batch the same one without its last token, which has another plan.
absl::Status PrintAttentions(const ModelConfig& config) {
  struct Arithmetic {
    const char* name;
    AttentionMode mode;
    ComputeDtype dtype;
  };
  for (const auto& [documents, length] : {std::pair(8, 1024), std::pair(2, 4096)}) {
    for (const auto& [name, mode, dtype] :
         {Arithmetic{"bf16 fast", AttentionMode::kFast, kBfloat16},
          Arithmetic{"bf16 deterministic", AttentionMode::kDeterministic, kBfloat16},
          Arithmetic{"fp32", AttentionMode::kDeterministic, ComputeDtype::kFloat32}}) {
      for (const int64_t missing : {0, 1}) {
        MT_RETURN_IF_ERROR(PrintAttention({name, config, documents, length, missing, mode, dtype}));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& shape, const std::vector<int64_t>& token_counts,
                 bool attention_alone) {
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ShapeByName(shape));
  MT_RETURN_IF_ERROR(PrintAttentions(config));
  if (attention_alone) {
    return absl::OkStatus();
  }
  for (const int64_t tokens : token_counts) {
    MT_RETURN_IF_ERROR(PrintProducts(config, tokens));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  std::string shape = "qwen2.5-7b";
  std::vector<int64_t> token_counts = {8192};
  bool attention_alone = false;
  CLI::App app("Speed of a model's matrix products and attention on random numbers.");
  app.add_option("--shape", shape, "Shape of the model")
      ->check(CLI::IsMember(megatrain::ShapeNames()));
  app.add_option("tokens", token_counts, "Tokens of a micro-batch")->check(CLI::PositiveNumber);
  app.add_flag("--attention-alone", attention_alone, "Leave the products out");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = megatrain::Run(shape, token_counts, attention_alone);
  if (!status.ok()) {
    std::fprintf(stderr, "gemm_benchmark: %s\n", status.ToString().c_str());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
