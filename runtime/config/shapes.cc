#include "runtime/config/shapes.h"

#include <array>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

struct NamedShape {
  std::string_view name;
  int64_t vocab_size;
  int64_t hidden_size;
  int64_t mlp_width;
  int64_t layer_count;
  int64_t head_count;
  int64_t kv_head_count;
  bool tied;
};

constexpr int64_t kHeadDim = 128;
constexpr std::array<NamedShape, 6> kShapes = {{
    {"tiny", 512, 256, 512, 2, 2, 1, true},
    {"qwen2.5-1.5b", 151936, 1536, 8960, 28, 12, 2, true},
    {"qwen2.5-7b", 152064, 3584, 18944, 28, 28, 4, false},
    {"qwen2.5-14b", 152064, 5120, 13824, 48, 40, 8, false},
    {"qwen2.5-32b", 152064, 5120, 27648, 64, 40, 8, false},
    {"qwen2.5-72b", 152064, 8192, 29568, 80, 64, 8, false},
}};

ModelConfig ToConfig(const NamedShape& shape) {
  ModelConfig config;
  config.architecture = "Qwen2ForCausalLM";
  config.model_type = "qwen2";
  config.vocab_size = shape.vocab_size;
  config.hidden_size = shape.hidden_size;
  config.mlp_width = shape.mlp_width;
  config.layer_count = shape.layer_count;
  config.head_count = shape.head_count;
  config.kv_head_count = shape.kv_head_count;
  config.head_dim = kHeadDim;
  config.max_positions = 131072;
  config.norm_epsilon = 1e-6;
  config.qkv_bias = true;
  config.tied = shape.tied;
  config.rope.theta = 1e6;
  config.layer_uses_window.assign(shape.layer_count, false);
  config.dtype = "bfloat16";
  return config;
}

// `count` times `width`, when that is a positive whole number.
absl::StatusOr<int64_t> Scaled(const char* what, int64_t count, double width) {
  const double scaled = static_cast<double>(count) * width;
  if (scaled < 1 || scaled != std::floor(scaled)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a width of ", width, " makes ", scaled, " of ", count, " ", what));
  }
  return static_cast<int64_t>(scaled);
}

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  names.reserve(kShapes.size());
  for (const NamedShape& shape : kShapes) {
    names.emplace_back(shape.name);
  }
  return names;
}

absl::StatusOr<ModelConfig> ShapeByName(std::string_view name) {
  std::string known;
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) {
      return ToConfig(shape);
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(shape.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no shape \"", std::string(name), "\": there are ", known));
}

absl::StatusOr<ModelConfig> Resized(ModelConfig config, int64_t layers, double width) {
  if (layers > 0) {
    config.layer_count = layers;
    config.layer_uses_window.assign(layers, false);
  }
  for (const auto& [what, count] : {std::pair("heads", &config.head_count),
                                    {"key and value heads", &config.kv_head_count},
                                    {"hidden values", &config.hidden_size},
                                    {"values of the MLP", &config.mlp_width}}) {
    MT_ASSIGN_OR_RETURN(*count, Scaled(what, *count, width));
  }
  return config;
}

}  // namespace megatrain
