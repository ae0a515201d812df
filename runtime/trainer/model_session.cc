#include "runtime/trainer/model_session.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/device/cpu_device.h"
#include "runtime/model/model_templates.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Create(const ModelConfig& config,
                                                                   int optimizer_threads,
                                                                   Clock& clock,
                                                                   ComputeDtype compute_dtype) {
  std::unique_ptr<ModelSession> session(
      new ModelSession(MakeModelLayout(config), optimizer_threads, clock));
  const HostStore::Options options{.gradient_bytes = static_cast<int>(SizeBytes(compute_dtype))};
  MT_ASSIGN_OR_RETURN(session->store_, HostStore::Create(session->layout_, options));
  MT_ASSIGN_OR_RETURN(session->templates_,
                      MakeModelTemplates(config, session->layout_, compute_dtype));
  return session;
}

ModelSession::ModelSession(ModelLayout layout, int optimizer_threads, Clock& clock)
    : layout_(std::move(layout)),
      device_(std::make_unique<CpuDevice>(clock)),
      pool_(optimizer_threads) {}

absl::Status ModelSession::StartPipeline(const PipelineOptions& options) {
  MT_ASSIGN_OR_RETURN(
      pipeline_,
      StepPipeline::Create(
          {.device = *device_, .store = *store_, .templates = *templates_, .pool = pool_}, layout_,
          options));
  return absl::OkStatus();
}

}  // namespace megatrain
