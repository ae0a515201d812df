#include "server/planning/plan_conversion.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

void AddItems(const std::vector<MemoryItem>& items,
              google::protobuf::RepeatedPtrField<v1::MemoryItem>* result) {
  for (const MemoryItem& item : items) {
    v1::MemoryItem* added = result->Add();
    added->set_kind(item.kind);
    added->set_size_bytes(item.size_bytes);
  }
}

}  // namespace

JobShape JobShapeOf(const v1::TrainingSpec& spec) {
  const v1::TrainOptions& train = spec.train();
  const v1::PlacementOptions& placement = spec.placement();
  JobShape shape;
  shape.batch_rows = train.batch_rows();
  shape.micro_batch_rows = train.micro_batch_rows();
  shape.max_sequence_length = train.max_sequence_length();
  shape.packing = train.packing();
  shape.compute_dtype =
      train.compute_dtype() == "bf16" ? ComputeDtype::kBfloat16 : ComputeDtype::kFloat32;
  shape.attention =
      train.attention() == "deterministic" ? AttentionMode::kDeterministic : AttentionMode::kFast;
  if (placement.order() == "layer_major") {
    shape.order = MicroBatchOrder::kLayerMajor;
  } else if (placement.order() == "micro_batch_major") {
    shape.order = MicroBatchOrder::kMicroBatchMajor;
  }
  shape.weight_slot_count = placement.weight_slot_count();
  shape.resident_weights = placement.resident_weights();
  if (placement.pin() == "full") {
    shape.pin = PinMode::kFull;
  } else if (placement.pin() == "slabs") {
    shape.pin = PinMode::kSlabs;
  }
  shape.host_limit_bytes = placement.host_limit_bytes();
  shape.device_limit_bytes = placement.hbm_limit_bytes();
  return shape;
}

v1::Plan PlanToProto(const Plan& plan) {
  v1::Plan result;
  result.set_fits(plan.fits);
  result.set_verdict(plan.verdict);
  AddItems(plan.host, result.mutable_host());
  AddItems(plan.device, result.mutable_device());
  result.set_host_bytes(plan.host_bytes);
  result.set_host_available_bytes(plan.host_available_bytes);
  result.set_device_bytes(plan.device_bytes);
  result.set_device_available_bytes(plan.device_available_bytes);
  result.set_parameter_count(plan.parameter_count);
  result.set_active_parameter_count(plan.active_parameter_count);
  result.set_order(std::string(OrderName(plan.pipeline.order)));
  result.set_weight_slot_count(plan.pipeline.weight_slot_count);
  result.set_trainable(plan.trainable);
  result.set_step_tokens(plan.pipeline.max_step_tokens);
  result.set_micro_batch_tokens(plan.pipeline.max_micro_batch_tokens);
  result.set_step_seconds(plan.predicted.seconds);
  if (plan.predicted.seconds > 0) {
    for (const Resource resource : kAllResources) {
      v1::ResourceTime* time = result.add_resources();
      time->set_resource(std::string(ResourceName(resource)));
      time->set_busy_seconds(plan.predicted.busy_seconds[static_cast<size_t>(resource)]);
    }
  }
  return result;
}

void ExplanationToProto(const PlanExplanation& explanation, v1::Plan& plan) {
  plan.set_binding_resource(explanation.binding_resource);
  for (const ResourceGain& gain : explanation.gains) {
    v1::ResourceGain* added = plan.add_gains();
    added->set_resource(gain.resource);
    added->set_amount(gain.amount);
    added->set_saved_seconds(gain.saved_seconds);
  }
  for (const PlanePlacement& plane : explanation.planes) {
    v1::PlanePlacement* added = plan.add_planes();
    added->set_plane(plane.plane);
    added->set_place(plane.place);
    added->set_unit_count(plane.unit_count);
  }
}

std::string MachineInWords(const Machine& machine) {
  return machine.has_kernels
             ? machine.name
             : absl::StrCat(machine.name,
                            " (planned only: the engine trains on GPUs of the Hopper kind)");
}

}  // namespace megatrain
