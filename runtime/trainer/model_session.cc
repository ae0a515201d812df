#include "runtime/trainer/model_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/device/copy_speed.h"
#include "runtime/device/slab_launcher.h"
#include "runtime/model/layer_groups.h"
#include "runtime/pipeline/slab_pool.h"

namespace megatrain {
namespace {

// Copies are at line rate from here on; no more than a plan counts for buffers of files, which are
// not there at the time.
constexpr int64_t kMeasuredBytes = int64_t{16} << 20;

// In the order in which they are worth their pages; moments come last.
std::vector<HostStore::Plane> CrossingPlanes(const PipelineOptions& options, int unit_count) {
  bool weights_cross = false;
  bool gradients_cross = false;
  bool states_cross = false;
  for (int unit = 0; unit < unit_count; ++unit) {
    weights_cross = weights_cross || !options.on_device(unit);
    gradients_cross = gradients_cross || options.gradient_crosses(unit);
    states_cross = states_cross || PassesOverBus(options.update_of(unit));
  }
  std::vector<HostStore::Plane> planes;
  if (weights_cross) {
    planes.push_back(HostStore::Plane::kHi);
  }
  if (gradients_cross) {
    planes.push_back(HostStore::Plane::kGradient);
  }
  if (states_cross || (weights_cross && options.compute_dtype == ComputeDtype::kFloat32)) {
    planes.push_back(HostStore::Plane::kLo);
  }
  if (states_cross) {
    planes.insert(planes.end(), {HostStore::Plane::kMoment1, HostStore::Plane::kMoment2});
  }
  return planes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Create(const ModelConfig& config,
                                                                   const Options& options,
                                                                   ComputeBackend& backend,
                                                                   Clock& clock) {
  const ModelLayout layers = MakeModelLayout(config);
  const int size = options.layers_per_unit;
  std::unique_ptr<ModelSession> session(
      new ModelSession(GroupLayers(layers, size), options.optimizer_threads, backend, clock));
  MT_ASSIGN_OR_RETURN(session->device_, backend.MakeDevice(clock));
  session->math_ = backend.MakeMath();
  const HostStore::Options store_options{
      .gradient_bytes = static_cast<int>(SizeBytes(options.templates.dtype)),
      .gradients = options.host_gradients,
      .fold_layers = options.fold_layers};
  MT_ASSIGN_OR_RETURN(session->store_, HostStore::Create(session->layout_, store_options));
  MT_ASSIGN_OR_RETURN(session->templates_,
                      backend.MakeTemplates(config, layers, options.templates));
  if (size > 1) {
    session->templates_ =
        MakeGroupTemplates(std::move(session->templates_), layers, size, options.templates.dtype);
  }
  return session;
}

ModelSession::ModelSession(ModelLayout layout, int optimizer_threads, ComputeBackend& backend,
                           Clock& clock)
    : layout_(std::move(layout)),
      backend_(backend),
      clock_(clock),
      pool_(optimizer_threads,
            backend.kind() == Backend::kCuda ? OptimizerPool::kBesideLaunches : 0) {}

absl::StatusOr<HostStore::PopulateReport> ModelSession::Populate(const ByteProgress& progress) {
  return store_->Populate(pool_.thread_count(), progress);
}

absl::StatusOr<HostStore::PinReport> ModelSession::Pin(const PipelineOptions& options,
                                                       const ByteProgress& progress) {
  const std::vector<HostStore::Plane> planes = CrossingPlanes(options, store_->unit_count());
  if (backend_.pinner() == nullptr || planes.empty() || options.pin == PinMode::kSlabs) {
    return HostStore::PinReport();
  }
  return store_->Pin(*backend_.pinner(), planes, progress);
}

absl::StatusOr<ModelSession::CopySpeeds> ModelSession::MeasureCopies() {
  constexpr int kUnit = 0;
  const int64_t size_bytes =
      std::min(kMeasuredBytes, layout_.units[kUnit].element_count * int64_t{sizeof(float)});
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBuffer> pinned,
                      device_->AllocateHost(size_bytes));
  const HostStore::Access access = store_->BeginAccess(kUnit);
  CopySpeeds speeds = {};
  MT_ASSIGN_OR_RETURN(speeds.pinned,
                      MeasureCopyToDevice(*device_, clock_, pinned->data(), size_bytes));
  const auto lane = SlabPool::MakeLane(*device_, layout_, pool_.thread_count());
  MT_ASSIGN_OR_RETURN(speeds.pageable,
                      MeasureCopyToDevice(*device_, clock_, store_->moment2(kUnit), size_bytes,
                                          lane.ok() ? lane->get() : nullptr));
  return speeds;
}

absl::Status ModelSession::StartPipeline(const PipelineOptions& options,
                                         const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(pipeline_, StepPipeline::Create({.device = *device_,
                                                       .math = *math_,
                                                       .store = *store_,
                                                       .templates = *templates_,
                                                       .pool = pool_,
                                                       .pinner = backend_.pinner(),
                                                       .progress = progress},
                                                      layout_, options));
  return absl::OkStatus();
}

}  // namespace megatrain
