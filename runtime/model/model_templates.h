#ifndef RUNTIME_MODEL_MODEL_TEMPLATES_H_
#define RUNTIME_MODEL_MODEL_TEMPLATES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// The templates of a dense decoder of the Llama or Qwen2 kind on the CPU. `layout` is
// MakeModelLayout of `config`. Thread-safe as ModelTemplates says; allocates nothing of a micro-
// batch's size outside the workspaces it is given. UNIMPLEMENTED by name for another shape.
absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeModelTemplates(const ModelConfig& config,
                                                                   const ModelLayout& layout,
                                                                   ComputeDtype dtype);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_MODEL_TEMPLATES_H_
