#include "runtime/trainer/model_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Create(const ModelConfig& config,
                                                                   const Options& options,
                                                                   ComputeBackend& backend,
                                                                   Clock& clock) {
  std::unique_ptr<ModelSession> session(
      new ModelSession(MakeModelLayout(config), options.optimizer_threads, backend));
  MT_ASSIGN_OR_RETURN(session->device_, backend.MakeDevice(clock));
  session->math_ = backend.MakeMath();
  const HostStore::Options store_options{
      .gradient_bytes = static_cast<int>(SizeBytes(options.templates.dtype)),
      .fold_layers = options.fold_layers};
  MT_ASSIGN_OR_RETURN(session->store_, HostStore::Create(session->layout_, store_options));
  MT_ASSIGN_OR_RETURN(session->templates_,
                      backend.MakeTemplates(config, session->layout_, options.templates));
  return session;
}

ModelSession::ModelSession(ModelLayout layout, int optimizer_threads, ComputeBackend& backend)
    : layout_(std::move(layout)), backend_(backend), pool_(optimizer_threads) {}

absl::Status ModelSession::StartPipeline(const PipelineOptions& options) {
  PinWhatCrosses(options);
  MT_ASSIGN_OR_RETURN(pipeline_, StepPipeline::Create({.device = *device_,
                                                       .math = *math_,
                                                       .store = *store_,
                                                       .templates = *templates_,
                                                       .pool = pool_,
                                                       .pinner = backend_.pinner()},
                                                      layout_, options));
  return absl::OkStatus();
}

void ModelSession::PinWhatCrosses(const PipelineOptions& options) {
  const std::vector<bool>& on_device = options.state_on_device;
  const bool nothing_crosses =
      !on_device.empty() && std::find(on_device.begin(), on_device.end(), false) == on_device.end();
  if (backend_.pinner() == nullptr || nothing_crosses) {
    return;
  }
  std::vector<HostStore::Plane> planes = {HostStore::Plane::kHi, HostStore::Plane::kGradient};
  if (options.compute_dtype == ComputeDtype::kFloat32) {
    planes.push_back(HostStore::Plane::kLo);
  }
  store_->Pin(*backend_.pinner(), planes);
}

}  // namespace megatrain
