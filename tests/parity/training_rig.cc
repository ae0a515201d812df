#include "tests/parity/training_rig.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model/model_templates.h"
#include "runtime/model/workspace_size.h"

namespace megatrain {

TrainingRig::TrainingRig(const ModelConfig& config, const RigOptions& options)
    : config_(config),
      options_(options),
      layout_(MakeModelLayout(config)),
      device_(clock_),
      pool_(options.optimizer_threads) {}

absl::StatusOr<std::unique_ptr<TrainingRig>> TrainingRig::Create(const ModelConfig& config,
                                                                 const RigOptions& options) {
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  std::unique_ptr<TrainingRig> rig(new TrainingRig(config, options));
  MT_ASSIGN_OR_RETURN(
      rig->store_,
      HostStore::Create(rig->layout_, {.gradient_bytes = static_cast<int>(SizeBytes(options.dtype)),
                                       .protect_idle_units = true}));
  MT_ASSIGN_OR_RETURN(rig->templates_, MakeModelTemplates(config, rig->layout_, options.dtype));
  return rig;
}

absl::Status TrainingRig::Start() {
  MT_CHECK(pipeline_ == nullptr);
  const int64_t tokens = options_.max_tokens;
  MT_ASSIGN_OR_RETURN(
      pipeline_, StepPipeline::Create({device_, math_, *store_, *templates_, pool_}, layout_,
                                      {.order = options_.order,
                                       .weight_slot_count = options_.slots,
                                       .gradient_slot_count = options_.slots,
                                       .resident_weights = options_.resident,
                                       .compute_dtype = options_.dtype,
                                       .max_micro_batch_tokens = tokens,
                                       .max_step_tokens = tokens,
                                       .max_micro_batches = options_.max_micro_batches,
                                       .workspace_bytes = WorkspaceBytes(config_, options_.dtype,
                                                                         tokens, tokens, tokens)}));
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

std::string TrainingRig::StateBytes() {
  std::string bytes;
  for (int unit = 0; unit < store_->unit_count(); ++unit) {
    const auto access = store_->BeginAccess(unit);
    const size_t count = layout_.units[unit].element_count;
    const auto append = [&](const auto* plane) {
      bytes.append(reinterpret_cast<const char*>(plane), count * sizeof(*plane));
    };
    append(store_->hi(unit));
    append(store_->lo(unit));
    append(store_->moment1(unit));
    append(store_->moment2(unit));
  }
  return bytes;
}

}  // namespace megatrain
