// AdamW on the device: of units whose state is there, and of units whose state passes over the bus.

#ifndef RUNTIME_PIPELINE_DEVICE_UPDATE_H_
#define RUNTIME_PIPELINE_DEVICE_UPDATE_H_

#include "absl/status/status.h"
#include "runtime/device/device.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/pipeline/pipeline_state.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Copies what stays on the device of a unit there, and makes the weights that the templates read;
// or copies it back to the store.
absl::Status BringState(PipelineState& pipeline, int unit, Launcher& launcher);
void FetchState(PipelineState& pipeline, int unit, Launcher& launcher);

// The operations of the same names. INTERNAL when a launch fails.
absl::Status UpdateOnDevice(PipelineState& pipeline, const Operation& operation,
                            const AdamWStep& step, Launcher& launcher);
void LoadState(PipelineState& pipeline, const Operation& operation, Launcher& launcher);
absl::Status UpdateChunk(PipelineState& pipeline, const Operation& operation, const AdamWStep& step,
                         Launcher& launcher);
void StoreState(PipelineState& pipeline, const Operation& operation, Launcher& launcher);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_DEVICE_UPDATE_H_
