#include "runtime/pipeline/device_update.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// Consecutive elements of a unit, and where the device has them: every array begins with element
// `first`. What the device does not have is not set.
struct Part {
  int64_t first = 0;
  int64_t count = 0;
  uint16_t* hi = nullptr;
  int16_t* lo = nullptr;
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  std::byte* gradient = nullptr;
  GradientForm gradient_form = GradientForm::kFloat32;
};

template <typename T>
T* At(const PipelineState& pipeline, const DeviceRegion& region, int64_t first = 0) {
  return reinterpret_cast<T*>(pipeline.device + region.offset_bytes) + first;
}

bool GradientsAreBfloat16(const PipelineState& pipeline) {
  return pipeline.store.gradient_bytes() == SizeBytes(ComputeDtype::kBfloat16);
}

// Of a unit whose weights and gradient accumulator stay on the device.
void SetResident(const PipelineState& pipeline, const Operation& operation, Part& part) {
  part.hi = At<uint16_t>(pipeline, pipeline.map.states[operation.unit].hi, part.first);
  const DeviceRegion& gradients = pipeline.map.gradient_slots[operation.gradient_slot];
  part.gradient = reinterpret_cast<std::byte*>(At<float>(pipeline, gradients, part.first));
  part.gradient_form =
      GradientsAreBfloat16(pipeline) ? GradientForm::kFloat32ToRound : GradientForm::kFloat32;
}

Part WholeUnit(const PipelineState& pipeline, const Operation& operation) {
  const DeviceState& state = pipeline.map.states[operation.unit];
  Part part = {.count = pipeline.layout.units[operation.unit].element_count,
               .lo = At<int16_t>(pipeline, state.lo),
               .moment1 = At<float>(pipeline, state.moment1),
               .moment2 = At<float>(pipeline, state.moment2)};
  SetResident(pipeline, operation, part);
  return part;
}

std::byte* KeptGradient(const PipelineState& pipeline, int unit) {
  return At<std::byte>(pipeline, pipeline.map.states[unit].gradient);
}

// What a staging slot has of a chunk, and its gradient where the unit keeps that.
Part Staged(const PipelineState& pipeline, const Operation& operation) {
  const StagingSlot& slot = pipeline.map.staging_slots[operation.staging_slot];
  const int64_t all = pipeline.layout.units[operation.unit].element_count;
  Part part = {.first = operation.chunk * pipeline.options.state_chunk_elements,
               .lo = At<int16_t>(pipeline, slot.lo),
               .moment1 = At<float>(pipeline, slot.moment1),
               .moment2 = At<float>(pipeline, slot.moment2)};
  part.count = std::min(pipeline.options.state_chunk_elements, all - part.first);
  if (!pipeline.options.on_device(operation.unit)) {
    part.hi = At<uint16_t>(pipeline, slot.hi);
    part.gradient =
        pipeline.options.keeps_gradient(operation.unit)
            ? KeptGradient(pipeline, operation.unit) + part.first * pipeline.store.gradient_bytes()
            : At<std::byte>(pipeline, slot.gradient);
    part.gradient_form =
        GradientsAreBfloat16(pipeline) ? GradientForm::kBfloat16 : GradientForm::kFloat32;
  }
  return part;
}

// The tensors' elements in the part; what lies between tensors is not touched.
absl::Status UpdatePart(PipelineState& pipeline, int unit, const Part& part, const AdamWStep& step,
                        Launcher& launcher) {
  AdamWStep plain = step;
  plain.weight_decay = 0.0;
  const int64_t gradient_bytes = part.gradient_form == GradientForm::kBfloat16 ? 2 : 4;
  for (const TensorLayout& tensor : pipeline.layout.units[unit].tensors) {
    const int64_t begin = std::max(tensor.offset_elements, part.first);
    const int64_t end =
        std::min(tensor.offset_elements + tensor.element_count, part.first + part.count);
    if (begin >= end) {
      continue;
    }
    const int64_t at = begin - part.first;
    MT_RETURN_IF_ERROR(pipeline.math.Update({.hi = part.hi + at,
                                             .lo = part.lo + at,
                                             .moment1 = part.moment1 + at,
                                             .moment2 = part.moment2 + at,
                                             .gradient = part.gradient + at * gradient_bytes,
                                             .gradient_form = part.gradient_form,
                                             .count = end - begin},
                                            tensor.decays ? step : plain, launcher));
  }
  return absl::OkStatus();
}

// Makes the weights that the templates read from halves on the device. With bf16 compute the upper
// half is what they read, and nothing is to be done.
absl::Status JoinWeights(PipelineState& pipeline, int unit, const Part& part, Launcher& launcher) {
  if (pipeline.options.compute_dtype == ComputeDtype::kBfloat16) {
    return absl::OkStatus();
  }
  float* weights = At<float>(pipeline, pipeline.map.states[unit].weights, part.first);
  return pipeline.math.JoinFloats(part.hi, part.lo, weights, part.count, launcher);
}

template <typename T>
void CopyUp(T* device, const T* host, int64_t count, Launcher& launcher) {
  launcher.CopyToDevice(device, host, count * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
void CopyDown(T* host, const T* device, int64_t count, Launcher& launcher) {
  launcher.CopyToHost(host, device, count * static_cast<int64_t>(sizeof(T)));
}

}  // namespace

absl::Status BringState(PipelineState& pipeline, int unit, Launcher& launcher) {
  const DeviceState& state = pipeline.map.states[unit];
  HostStore& store = pipeline.store;
  const int64_t count = pipeline.layout.units[unit].element_count;
  const HostStore::Access access = store.BeginAccess(unit);
  CopyUp(At<uint16_t>(pipeline, state.hi), store.hi(unit), count, launcher);
  if (!PassesOverBus(pipeline.options.update_of(unit))) {
    CopyUp(At<int16_t>(pipeline, state.lo), store.lo(unit), count, launcher);
    CopyUp(At<float>(pipeline, state.moment1), store.moment1(unit), count, launcher);
    CopyUp(At<float>(pipeline, state.moment2), store.moment2(unit), count, launcher);
  }
  if (pipeline.options.compute_dtype == ComputeDtype::kBfloat16) {
    return absl::OkStatus();
  }
  return pipeline.math.LoadFloats(
      store.hi(unit), store.lo(unit), At<float>(pipeline, state.weights),
      At<std::byte>(pipeline, pipeline.map.load_staging), count, launcher);
}

void FetchState(PipelineState& pipeline, int unit, Launcher& launcher) {
  const DeviceState& state = pipeline.map.states[unit];
  HostStore& store = pipeline.store;
  const int64_t count = pipeline.layout.units[unit].element_count;
  const HostStore::Access access = store.BeginAccess(unit);
  CopyDown(store.hi(unit), At<uint16_t>(pipeline, state.hi), count, launcher);
  if (!PassesOverBus(pipeline.options.update_of(unit))) {
    CopyDown(store.lo(unit), At<int16_t>(pipeline, state.lo), count, launcher);
    CopyDown(store.moment1(unit), At<float>(pipeline, state.moment1), count, launcher);
    CopyDown(store.moment2(unit), At<float>(pipeline, state.moment2), count, launcher);
  }
  launcher.FinishCopies();
}

absl::Status UpdateOnDevice(PipelineState& pipeline, const Operation& operation,
                            const AdamWStep& step, Launcher& launcher) {
  const Part part = WholeUnit(pipeline, operation);
  MT_RETURN_IF_ERROR(UpdatePart(pipeline, operation.unit, part, step, launcher));
  return JoinWeights(pipeline, operation.unit, part, launcher);
}

void LoadState(PipelineState& pipeline, const Operation& operation, Launcher& launcher) {
  const Part part = Staged(pipeline, operation);
  const int unit = operation.unit;
  HostStore& store = pipeline.store;
  const HostStore::Access access = store.BeginAccess(unit);
  CopyUp(part.lo, store.lo(unit) + part.first, part.count, launcher);
  CopyUp(part.moment1, store.moment1(unit) + part.first, part.count, launcher);
  CopyUp(part.moment2, store.moment2(unit) + part.first, part.count, launcher);
  if (!pipeline.options.on_device(unit)) {
    CopyUp(part.hi, store.hi(unit) + part.first, part.count, launcher);
  }
  if (pipeline.options.gradient_crosses(unit)) {
    const int64_t bytes = store.gradient_bytes();
    CopyUp(part.gradient, static_cast<std::byte*>(store.gradient(unit)) + part.first * bytes,
           part.count * bytes, launcher);
  }
}

absl::Status UpdateChunk(PipelineState& pipeline, const Operation& operation, const AdamWStep& step,
                         Launcher& launcher) {
  Part part = Staged(pipeline, operation);
  const bool is_resident = pipeline.options.on_device(operation.unit);
  if (is_resident) {
    SetResident(pipeline, operation, part);
  }
  MT_RETURN_IF_ERROR(UpdatePart(pipeline, operation.unit, part, step, launcher));
  return is_resident ? JoinWeights(pipeline, operation.unit, part, launcher) : absl::OkStatus();
}

void StoreState(PipelineState& pipeline, const Operation& operation, Launcher& launcher) {
  const Part part = Staged(pipeline, operation);
  const int unit = operation.unit;
  HostStore& store = pipeline.store;
  const HostStore::Access access = store.BeginAccess(unit);
  CopyDown(store.lo(unit) + part.first, part.lo, part.count, launcher);
  CopyDown(store.moment1(unit) + part.first, part.moment1, part.count, launcher);
  CopyDown(store.moment2(unit) + part.first, part.moment2, part.count, launcher);
  if (!pipeline.options.on_device(unit)) {
    CopyDown(store.hi(unit) + part.first, part.hi, part.count, launcher);
  }
  launcher.FinishCopies();
}

}  // namespace megatrain
