// Shapes to place, and what there is to place them in.

#ifndef RUNTIME_PLANNER_PLACEMENT_CASE_FOR_TEST_H_
#define RUNTIME_PLANNER_PLACEMENT_CASE_FOR_TEST_H_

#include <cstdint>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/planner/placement_choice.h"
#include "runtime/planner/placement_request.h"

namespace megatrain {

inline constexpr int64_t kGibibyte = int64_t{1} << 30;
inline constexpr int64_t kLargeGpu = 137 * kGibibyte;

// What templates like those of a GPU take of a shape, in bf16.
inline BackendMemory MemoryOf(const ModelConfig& config) {
  const int64_t query = config.head_count * config.head_dim;
  const int64_t qkv = query + 2 * config.kv_head_count * config.head_dim;
  const int64_t attention = 2 * query + 4 * config.head_count;
  const int64_t projections = attention + 2 * qkv;
  const int64_t products = projections + 2 * config.hidden_size + 4 * config.mlp_width;
  const int64_t all = products + 4 * config.hidden_size + 2 * config.mlp_width;
  return {.workspace_bytes =
              [=](int64_t tokens) {
                return kGibibyte + tokens * (6 * config.hidden_size + 4 * config.mlp_width);
              },
          .batch_table_bytes = [](int64_t tokens) { return 64 * tokens; },
          .kept_token_bytes = {0, attention, projections, products, all}};
}

struct PlacementCase {
  explicit PlacementCase(const char* shape, int64_t layers = 0)
      : config(Resized(ShapeByName(shape).value(), layers, /*width=*/1).value()),
        layout(MakeModelLayout(config)),
        memory(MemoryOf(config)) {}

  const ModelConfig config;
  const ModelLayout layout;
  const BackendMemory memory;
};

inline PlacementRequest Request(int64_t rows, int64_t row_tokens, int64_t device_bytes) {
  return {.step = {.rows = rows, .row_tokens = row_tokens},
          .device_bytes = device_bytes,
          .host_bytes = 1024 * kGibibyte};
}

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLACEMENT_CASE_FOR_TEST_H_
