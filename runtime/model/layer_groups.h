// Several layers as one unit, whose only kept boundary is that before the first: activation
// checkpoints that are further apart than a layer. For measuring what they cost.

#ifndef RUNTIME_MODEL_LAYER_GROUPS_H_
#define RUNTIME_MODEL_LAYER_GROUPS_H_

#include <cstdint>
#include <memory>

#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// Every `size` layers after one another make a unit, which streams as one piece. The number of
// layers must be a multiple of `size`.
ModelLayout GroupLayers(const ModelLayout& layout, int size);

// What a group's backward takes of its workspace beside what its layers take: the boundaries
// between them, of a micro-batch of so many tokens.
int64_t GroupWorkspaceBytes(int size, int64_t tokens, int64_t boundary_token_bytes);

// Templates for the units of GroupLayers(layout, size) over those for `layout`. Backward computes
// the boundaries within a group again before it goes through its layers; nothing else is kept.
std::unique_ptr<ModelTemplates> MakeGroupTemplates(std::unique_ptr<ModelTemplates> layers,
                                                   const ModelLayout& layout, int size,
                                                   ComputeDtype dtype);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_LAYER_GROUPS_H_
