// Speed of the matrix products and of the attention of one Qwen2.5-7B layer and its head, on
// random numbers: cuBLASLt's first choice beside its next ones, cuDNN beside our own kernels.
//
//   gemm_benchmark [tokens...]    default: 8192 4096 16384
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/matmul_call.h"
#include "runtime/kernels/matmul_plan.h"
#include "runtime/kernels/matmul_scratch.h"
#include "runtime/kernels/packed_attention.h"

namespace megatrain {
namespace {

constexpr auto kBfloat16 = ComputeDtype::kBfloat16;

// Device memory, freed at the end.
class Memory {
 public:
  static absl::StatusOr<Memory> Allocate(int64_t bytes) {
    void* data = nullptr;
    MT_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, bytes), "cudaMalloc"));
    return Memory(data);
  }
  void* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { cudaFree(data); }
  };
  explicit Memory(void* data) : data_(data) {}
  std::unique_ptr<void, Free> data_;
};

// `count` normal numbers of standard deviation 0.5 in bf16: a block of them over and over, whose
// length shares no factor with a row's.
absl::StatusOr<Memory> RandomMemory(int64_t count) {
  constexpr int64_t kBlock = (int64_t{1} << 20) + 7;
  static const std::vector<__nv_bfloat16> block = [] {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0, 0.5f);
    std::vector<__nv_bfloat16> numbers(kBlock);
    for (__nv_bfloat16& number : numbers) {
      number = __float2bfloat16_rn(normal(generator));
    }
    return numbers;
  }();
  MT_ASSIGN_OR_RETURN(Memory memory, Memory::Allocate(count * 2));
  for (int64_t at = 0; at < count; at += kBlock) {
    MT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(static_cast<char*>(memory.data()) + at * 2, block.data(),
                              std::min(kBlock, count - at) * 2, cudaMemcpyHostToDevice),
                   "cudaMemcpy"));
  }
  return memory;
}

// Seconds of one run, by the GPU's clock, over `runs` after two to warm up.
absl::StatusOr<double> Seconds(const std::function<absl::Status()>& run, int runs = 20) {
  cudaEvent_t begin;
  cudaEvent_t end;
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin), "cudaEventCreate"));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&end), "cudaEventCreate"));
  for (int i = -2; i < runs; ++i) {
    if (i == 0) {
      MT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin, nullptr), "cudaEventRecord"));
    }
    MT_RETURN_IF_ERROR(run());
  }
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end, nullptr), "cudaEventRecord"));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end), "benchmark"));
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds * 1e-3 / runs;
}

// TFLOP/s of a product with the heuristic's first choices, in its order.
absl::Status PrintProduct(cublasLtHandle_t handle, const std::string& name, const MatmulCall& call,
                          void* scratch) {
  constexpr int kPlans = 8;
  MT_ASSIGN_OR_RETURN(const std::vector<MatmulPlan> plans,
                      FindMatmulPlans(handle, call.problem, kPlans));
  const MatmulProblem& problem = call.problem;
  std::printf("%-24s m %6lld n %6lld k %6lld beta %.0f |", name.c_str(),
              static_cast<long long>(problem.m), static_cast<long long>(problem.n),
              static_cast<long long>(problem.k), call.operands.beta);
  for (const MatmulPlan& plan : plans) {
    MT_ASSIGN_OR_RETURN(const double seconds, Seconds([&] {
                          return RunMatmul(handle, plan, call.operands, scratch, nullptr);
                        }));
    std::printf(" %4.0f", 2e-12 * problem.m * problem.n * problem.k / seconds);
    std::fflush(stdout);
  }
  std::printf("\n");
  return absl::OkStatus();
}

struct Linear {
  const char* name;
  int64_t in, out;
  bool bias = false;
  bool addend = false;
  bool is_head = false;  // fp32 output
};

absl::Status PrintLinear(cublasLtHandle_t handle, const Linear& linear, int64_t rows) {
  MT_ASSIGN_OR_RETURN(const Memory x, RandomMemory(rows * linear.in));
  MT_ASSIGN_OR_RETURN(const Memory weight, RandomMemory(linear.out * linear.in));
  MT_ASSIGN_OR_RETURN(const Memory dy, RandomMemory(rows * linear.out));
  MT_ASSIGN_OR_RETURN(const Memory y, RandomMemory(rows * linear.out * (linear.is_head ? 2 : 1)));
  MT_ASSIGN_OR_RETURN(const Memory dx, RandomMemory(rows * linear.in));
  MT_ASSIGN_OR_RETURN(const Memory bias, RandomMemory(linear.out));
  MT_ASSIGN_OR_RETURN(const Memory dw, Memory::Allocate(linear.out * linear.in * 4));
  MT_RETURN_IF_ERROR(
      CudaStatus(cudaMemset(dw.data(), 0, linear.out * linear.in * 4), "cudaMemset"));
  MT_ASSIGN_OR_RETURN(const Memory scratch, Memory::Allocate(kMatmulScratchBytes));
  const MatrixView x_view{x.data(), rows, linear.in, linear.in};
  const MatrixView weight_view{weight.data(), linear.out, linear.in, linear.in};
  const MatrixView y_view{y.data(), rows, linear.out, linear.out};
  const MatrixView dy_view{dy.data(), rows, linear.out, linear.out};
  const MatrixView dx_view{dx.data(), rows, linear.in, linear.in};
  MT_ASSIGN_OR_RETURN(const MatmulCall forward,
                      ForwardCall(x_view, weight_view, y_view,
                                  {.bias = linear.bias ? bias.data() : nullptr,
                                   .addend = linear.addend ? &dy_view : nullptr,
                                   .float_output = linear.is_head},
                                  kBfloat16));
  MT_ASSIGN_OR_RETURN(const MatmulCall input,
                      BackwardInputCall(dy_view, weight_view, dx_view, false, kBfloat16));
  MT_ASSIGN_OR_RETURN(
      const MatmulCall gradient,
      BackwardWeightCall(dy_view, x_view, static_cast<float*>(dw.data()), true, kBfloat16));
  const std::string name = linear.name;
  MT_RETURN_IF_ERROR(PrintProduct(handle, name + " forward", forward, scratch.data()));
  MT_RETURN_IF_ERROR(PrintProduct(handle, name + " dx", input, scratch.data()));
  return PrintProduct(handle, name + " dW", gradient, scratch.data());
}

absl::Status PrintLayer(cublasLtHandle_t handle, int64_t tokens) {
  std::printf("%lld tokens: TFLOP/s of the heuristic's first to eighth choice\n",
              static_cast<long long>(tokens));
  for (const Linear& linear : {Linear{.name = "qkv", .in = 3584, .out = 4608, .bias = true},
                               Linear{.name = "output", .in = 3584, .out = 3584, .addend = true},
                               Linear{.name = "gate_up", .in = 3584, .out = 37888},
                               Linear{.name = "down", .in = 18944, .out = 3584, .addend = true}}) {
    MT_RETURN_IF_ERROR(PrintLinear(handle, linear, tokens));
  }
  return absl::OkStatus();
}

// Documents of one length, 28 query and 4 key heads of 128.
struct AttentionCase {
  const char* name;
  int64_t documents;
  int64_t length;
  AttentionMode mode;
  ComputeDtype dtype;

  AttentionShape Shape() const {
    return {.max_tokens = documents * length,
            .heads = 28,
            .kv_heads = 4,
            .head_dim = 128,
            .dtype = dtype,
            .mode = mode};
  }
};

absl::StatusOr<Memory> DeviceTables(const AttentionCase& work) {
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i <= work.documents; ++i) {
    offsets.push_back(static_cast<int32_t>(i * work.length));
  }
  std::vector<char> tables(AttentionTableBytes(work.Shape(), offsets.back(), work.documents));
  FillAttentionTables(work.Shape(), offsets, tables.data());
  MT_ASSIGN_OR_RETURN(Memory memory, Memory::Allocate(std::ssize(tables)));
  MT_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(memory.data(), tables.data(), tables.size(), cudaMemcpyHostToDevice),
                 "cudaMemcpy"));
  return memory;
}

absl::Status TimeAttention(const AttentionCase& work, const AttentionTensors& tensors,
                           const AttentionBatch& batch, const AttentionContext& context) {
  const AttentionShape shape = work.Shape();
  MT_ASSIGN_OR_RETURN(const auto attention, MakePackedAttention(shape));
  MT_RETURN_IF_ERROR(attention->Prepare(work.documents, work.length));
  const int runs = work.dtype == kBfloat16 ? 20 : 3;
  MT_ASSIGN_OR_RETURN(const double forward,
                      Seconds([&] { return attention->Forward(tensors, batch, context); }, runs));
  MT_ASSIGN_OR_RETURN(const double backward,
                      Seconds([&] { return attention->Backward(tensors, batch, context); }, runs));
  const double flop = 2.0 * static_cast<double>(batch.tokens * work.length * shape.OutWidth());
  std::printf("attention %-20s %lld x %lld | forward %6.1f backward %6.1f TFLOP/s\n", work.name,
              static_cast<long long>(work.documents), static_cast<long long>(work.length),
              1e-12 * flop / forward, 2.5e-12 * flop / backward);
  return absl::OkStatus();
}

absl::Status PrintAttention(const AttentionCase& work) {
  const AttentionShape shape = work.Shape();
  const int64_t tokens = shape.max_tokens;
  const int64_t halves = SizeBytes(work.dtype) / 2;  // two bf16 numbers make a harmless fp32 one
  MT_ASSIGN_OR_RETURN(const Memory tables, DeviceTables(work));
  MT_ASSIGN_OR_RETURN(const Memory qkv, RandomMemory(tokens * shape.QkvWidth() * halves));
  MT_ASSIGN_OR_RETURN(const Memory out, RandomMemory(tokens * shape.OutWidth() * halves));
  MT_ASSIGN_OR_RETURN(const Memory log_sum_exp, Memory::Allocate(tokens * shape.heads * 4));
  MT_ASSIGN_OR_RETURN(const Memory out_gradient, RandomMemory(tokens * shape.OutWidth() * halves));
  MT_ASSIGN_OR_RETURN(const Memory qkv_gradient, RandomMemory(tokens * shape.QkvWidth() * halves));
  MT_ASSIGN_OR_RETURN(const Memory scratch, Memory::Allocate(AttentionScratchBytes(shape)));
  return TimeAttention(work,
                       {.qkv = qkv.data(),
                        .out = out.data(),
                        .log_sum_exp = static_cast<float*>(log_sum_exp.data()),
                        .out_gradient = out_gradient.data(),
                        .qkv_gradient = qkv_gradient.data()},
                       {.tokens = tokens,
                        .documents = work.documents,
                        .longest = work.length,
                        .tables = tables.data()},
                       {scratch.data(), nullptr});
}

absl::Status PrintAttentions() {
  constexpr auto kDeterministic = AttentionMode::kDeterministic;
  for (const auto& [documents, length] : {std::pair(8, 1024), std::pair(2, 4096)}) {
    for (const AttentionCase& work :
         {AttentionCase{"bf16 fast", documents, length, AttentionMode::kFast, kBfloat16},
          AttentionCase{"bf16 deterministic", documents, length, kDeterministic, kBfloat16},
          AttentionCase{"fp32", documents, length, kDeterministic, ComputeDtype::kFloat32}}) {
      MT_RETURN_IF_ERROR(PrintAttention(work));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const std::vector<int64_t>& token_counts) {
  MT_RETURN_IF_ERROR(PrintAttentions());
  cublasLtHandle_t handle = nullptr;
  MT_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&handle), "cublasLtCreate"));
  for (const int64_t tokens : token_counts) {
    MT_RETURN_IF_ERROR(PrintLayer(handle, tokens));
  }
  std::printf("head, 2048 rows\n");
  MT_RETURN_IF_ERROR(
      PrintLinear(handle, {.name = "head", .in = 3584, .out = 152064, .is_head = true}, 2048));
  return CublasStatus(cublasLtDestroy(handle), "cublasLtDestroy");
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  std::vector<int64_t> token_counts;
  for (int i = 1; i < argc; ++i) {
    token_counts.push_back(std::atoll(argv[i]));
  }
  if (token_counts.empty()) {
    token_counts = {8192, 4096, 16384};
  }
  const absl::Status status = megatrain::Run(token_counts);
  if (!status.ok()) {
    std::fprintf(stderr, "gemm_benchmark: %s\n", status.ToString().c_str());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
