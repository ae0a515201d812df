// Shapes of models by name, for measurements that need no model's files.

#ifndef RUNTIME_CONFIG_SHAPES_H_
#define RUNTIME_CONFIG_SHAPES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/config/model_config.h"

namespace megatrain {

// Names that ShapeByName knows, from small to large.
std::vector<std::string> ShapeNames();

// INVALID_ARGUMENT that lists the names when there is none like it.
absl::StatusOr<ModelConfig> ShapeByName(std::string_view name);

// The shape with another number of layers (0: its own) and with heads, hidden size and MLP times
// `width`; a head keeps its size. INVALID_ARGUMENT when that leaves a part of a head.
absl::StatusOr<ModelConfig> Resized(ModelConfig config, int64_t layers, double width);

}  // namespace megatrain

#endif  // RUNTIME_CONFIG_SHAPES_H_
