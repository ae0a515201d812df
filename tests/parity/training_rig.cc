#include "tests/parity/training_rig.h"

#include <array>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/planner/backend_memory.h"
#include "runtime/trainer/cpu_backend.h"

namespace megatrain {

ComputeBackend& CpuBackendForTest() {
  constexpr int kComputeThreads = 2;
  static const std::unique_ptr<ComputeBackend> backend = MakeCpuBackend(kComputeThreads);
  return *backend;
}

TrainingRig::TrainingRig(const ModelConfig& config, const RigOptions& options,
                         ComputeBackend& backend)
    : config_(config),
      options_(options),
      layout_(MakeModelLayout(config)),
      backend_(backend),
      pool_(options.optimizer_threads) {}

absl::StatusOr<std::unique_ptr<TrainingRig>> TrainingRig::Create(const ModelConfig& config,
                                                                 const RigOptions& options,
                                                                 ComputeBackend& backend) {
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  std::unique_ptr<TrainingRig> rig(new TrainingRig(config, options, backend));
  MT_ASSIGN_OR_RETURN(rig->device_, backend.MakeDevice(rig->clock_));
  rig->math_ = backend.MakeMath();
  MT_ASSIGN_OR_RETURN(
      rig->store_,
      HostStore::Create(rig->layout_, {.gradient_bytes = static_cast<int>(SizeBytes(options.dtype)),
                                       .gradients = HostGradients({.updates = options.updates}),
                                       .protect_idle_units = backend.pinner() == nullptr}));
  MT_ASSIGN_OR_RETURN(rig->templates_,
                      backend.MakeTemplates(config, rig->layout_,
                                            {.dtype = options.dtype,
                                             .attention = AttentionMode::kDeterministic,
                                             .limits = {.tokens = options.max_tokens,
                                                        .document_tokens = options.max_tokens,
                                                        .documents = options.max_documents}}));
  return rig;
}

absl::Status TrainingRig::Start() {
  MT_CHECK(pipeline_ == nullptr);
  constexpr std::array kCrossing = {HostStore::Plane::kHi, HostStore::Plane::kLo,
                                    HostStore::Plane::kGradient, HostStore::Plane::kMoment1,
                                    HostStore::Plane::kMoment2};
  PagePinner* const pinner = backend_.pinner();
  if (pinner != nullptr && options_.pin != PinMode::kSlabs) {
    MT_ASSIGN_OR_RETURN(const HostStore::PinReport report,
                        store_->Pin(*pinner, kCrossing, /*progress=*/{}));
    MT_RETURN_IF_ERROR(report.refusal);
  }
  const int64_t tokens = options_.max_tokens;
  const BackendMemory memory = MakeBackendMemory(
      config_,
      {.backend = backend_.kind(),
       .dtype = options_.dtype,
       .attention = AttentionMode::kDeterministic},
      {.document_tokens = tokens, .row_tokens = tokens, .row_documents = options_.max_documents});
  MT_ASSIGN_OR_RETURN(
      pipeline_,
      StepPipeline::Create({*device_, *math_, *store_, *templates_, pool_, pinner}, layout_,
                           {.order = options_.order,
                            .weight_slot_count = options_.weight_slots,
                            .gradient_slot_count = options_.gradient_slots,
                            .resident_weights = options_.resident,
                            .updates = options_.updates,
                            .state_chunk_elements = options_.state_chunk_elements,
                            .staging_slot_count = options_.staging_slots,
                            .keep = std::vector<KeepLevel>(layout_.units.size(), options_.keep),
                            .boundary_on_host = options_.boundary_on_host,
                            .kept_on_host = options_.kept_on_host,
                            .kept_places = options_.kept_places,
                            .stash_slot_count = options_.stash_slots,
                            .pin = options_.pin,
                            .slab_bytes = options_.slab_bytes,
                            .compute_dtype = options_.dtype,
                            .max_micro_batch_tokens = tokens,
                            .max_step_tokens = tokens,
                            .max_micro_batches = options_.max_micro_batches,
                            .workspace_bytes = memory.workspace_bytes(tokens),
                            .batch_table_bytes = memory.batch_table_bytes(tokens),
                            .kept_token_bytes = memory.kept_token_bytes,
                            .stages_loads = memory.stages_loads}));
  return absl::OkStatus();
}

std::vector<double> TrainingRig::Weights(int unit, const TensorLayout& tensor) {
  const auto access = store_->BeginAccess(unit);
  std::vector<double> values(tensor.element_count);
  for (int64_t i = 0; i < tensor.element_count; ++i) {
    const int64_t at = tensor.offset_elements + i;
    values[i] = JoinFloat(store_->hi(unit)[at], store_->lo(unit)[at]);
  }
  return values;
}

std::vector<double> TrainingRig::Gradient(int unit, const TensorLayout& tensor) {
  const auto access = store_->BeginAccess(unit);
  std::vector<double> values(tensor.element_count);
  for (int64_t i = 0; i < tensor.element_count; ++i) {
    const int64_t at = tensor.offset_elements + i;
    values[i] = store_->gradient_bytes() == 4
                    ? static_cast<const float*>(store_->gradient(unit))[at]
                    : JoinFloat(static_cast<const uint16_t*>(store_->gradient(unit))[at], 0);
  }
  return values;
}

void TrainingRig::VisitState(const std::function<void(std::string_view plane)>& visit) {
  for (int unit = 0; unit < store_->unit_count(); ++unit) {
    const auto access = store_->BeginAccess(unit);
    const size_t count = layout_.units[unit].element_count;
    const auto visit_plane = [&](const auto* plane) {
      visit({reinterpret_cast<const char*>(plane), count * sizeof(*plane)});
    };
    visit_plane(store_->hi(unit));
    visit_plane(store_->lo(unit));
    visit_plane(store_->moment1(unit));
    visit_plane(store_->moment2(unit));
  }
}

std::string TrainingRig::StateBytes() {
  std::string bytes;
  VisitState([&bytes](std::string_view plane) { bytes.append(plane); });
  return bytes;
}

std::vector<uint32_t> TrainingRig::StateDigests() {
  std::vector<uint32_t> digests;
  VisitState([&digests](std::string_view plane) { digests.push_back(Crc32c(plane)); });
  return digests;
}

}  // namespace megatrain
