#include "runtime/planner/backend_memory.h"

#include <algorithm>

#include "runtime/base/round_up.h"
#include "runtime/model/cuda_batch_tables.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/workspace_size.h"

namespace megatrain {
namespace {

constexpr int64_t kFloatBytes = 4;

// What drivers hand out at least.
constexpr int64_t kDeviceBlockBytes = int64_t{2} << 20;
constexpr int64_t kHostBlockBytes = int64_t{64} << 10;

// A token's experts side by side are one wide MLP.
ModelConfig AsDense(ModelConfig config) {
  if (config.moe.expert_count > 0) {
    config.mlp_width = config.moe.experts_per_token * config.moe.expert_width;
  }
  return config;
}

BackendMemory CpuMemory(const ModelConfig& config, ComputeDtype dtype, const RowLimits& limits) {
  return {.workspace_bytes =
              [=](int64_t tokens) {
                return WorkspaceBytes(config, dtype, tokens, limits.document_tokens, tokens);
              },
          .batch_table_bytes = [](int64_t) { return 0; }};
}

BackendMemory CudaMemory(const ModelConfig& config, const ComputeSetting& setting,
                         const RowLimits& limits) {
  const auto shape = [=](int64_t tokens) {
    return MakeCudaShape(config, setting.dtype, setting.attention, tokens);
  };
  BackendMemory memory{
      .workspace_bytes = [=](int64_t tokens) { return CudaWorkspaceBytes(shape(tokens), tokens); },
      .batch_table_bytes =
          [=](int64_t tokens) {
            const int64_t rows = (tokens + limits.row_tokens - 1) / limits.row_tokens;
            return MaxBatchTableBytes(shape(tokens).attention,
                                      {.tokens = tokens,
                                       .document_tokens = limits.document_tokens,
                                       .documents = rows * limits.row_documents});
          },
      .stages_loads = true};
  for (int level = 0; level < kKeepLevelCount; ++level) {
    memory.kept_token_bytes[level] = CudaKeptTokenBytes(shape(1), static_cast<KeepLevel>(level));
  }
  return memory;
}

}  // namespace

JobMemory MakeJobMemory(const ModelConfig& config, const ComputeSetting& setting,
                        const MicroBatchLimits& limits) {
  if (setting.backend != Backend::kCuda) {
    return {};
  }
  const CudaShape shape = MakeCudaShape(config, setting.dtype, setting.attention, limits.tokens);
  const int64_t table_bytes = MaxBatchTableBytes(shape.attention, limits);
  const int64_t rotary_bytes = limits.document_tokens * config.head_dim * kFloatBytes;
  return {.device_bytes = RoundUp(rotary_bytes, kDeviceBlockBytes),
          .host_bytes = kTableUploads * RoundUp(table_bytes, kHostBlockBytes)};
}

BackendMemory MakeBackendMemory(const ModelConfig& config, const ComputeSetting& setting,
                                const RowLimits& limits) {
  const ModelConfig dense = AsDense(config);
  return setting.backend == Backend::kCuda ? CudaMemory(dense, setting, limits)
                                           : CpuMemory(dense, setting.dtype, limits);
}

}  // namespace megatrain
