#include "runtime/trainer/warm_up.h"

#include <memory>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/config/model_config.h"
#include "runtime/data/step_batch.h"
#include "runtime/planner/planner.h"
#include "runtime/trainer/model_session.h"

namespace megatrain {
namespace {

// Wide enough that matrix products take the paths, and the buffers, of large ones.
constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048,
  "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1,
  "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_act": "silu",
  "max_position_embeddings": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
  "tie_word_embeddings": true})";

constexpr int64_t kDocumentTokens = 128;
constexpr int64_t kDocuments = 2;

OwnedMicroBatch MakeBatch() {
  std::vector<int32_t> tokens(kDocumentTokens);
  std::vector<uint8_t> trained(kDocumentTokens, 1);
  trained[0] = 0;
  for (int64_t i = 0; i < kDocumentTokens; ++i) {
    tokens[i] = static_cast<int32_t>(i);
  }
  OwnedMicroBatch batch;
  for (int64_t document = 0; document < kDocuments; ++document) {
    batch.Append(document, tokens, trained);
  }
  return batch;
}

absl::Status WarmUp(const ModelConfig& config, ComputeDtype dtype, ComputeBackend& backend,
                    int optimizer_threads, Clock& clock) {
  const JobShape shape{
      .batch_rows = kDocuments, .max_sequence_length = kDocumentTokens, .compute_dtype = dtype};
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory device, backend.ReadDeviceMemory());
  const Plan plan = PlanJob(config, shape,
                            {.backend = backend.kind(),
                             .device_memory_bytes = PipelineDeviceBytes(
                                 device.total_bytes, device.free_bytes, /*limit_bytes=*/0)});
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                      ModelSession::Create(config,
                                           {.optimizer_threads = optimizer_threads,
                                            .templates = {.dtype = dtype, .limits = plan.limits}},
                                           backend, clock));
  MT_RETURN_IF_ERROR(session->Pin(plan.pipeline, /*progress=*/{}).status());
  MT_RETURN_IF_ERROR(session->StartPipeline(plan.pipeline, /*progress=*/{}));
  const OwnedMicroBatch batch = MakeBatch();
  MT_RETURN_IF_ERROR(session->pipeline().SubmitStep(
      {.micro_batches = {batch.View()},
       .loss_token_count = static_cast<int64_t>(batch.loss_positions.size())}));
  MT_RETURN_IF_ERROR(session->pipeline().WaitStep().status());
  return session->pipeline().Drain();
}

}  // namespace

absl::Status WarmUpLibraries(ComputeBackend& backend, int optimizer_threads, Clock& clock) {
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(kConfig));
  for (const ComputeDtype dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
    MT_RETURN_IF_ERROR(WarmUp(config, dtype, backend, optimizer_threads, clock));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
