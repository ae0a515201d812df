// How a model's tensors lie in units: the one map that the planner, the host store, the
// device slots, the layer templates, import and export share.

#ifndef RUNTIME_CONFIG_MODEL_LAYOUT_H_
#define RUNTIME_CONFIG_MODEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/model_config.h"

namespace megatrain {

// What a unit does; a template is chosen by it and never by tensor shapes.
enum class UnitKind {
  kEmbedding,     // token table
  kDecoderLayer,  // attention and MLP
  kHead,          // final norm, and the output matrix unless it is tied to the token table
};

// The part that a tensor plays in its unit, in the order in which a unit holds them: what is
// multiplied with the same input lies side by side, so that it can be one matrix.
enum class TensorRole {
  kTokenTable,     // [vocab, d]
  kAttentionNorm,  // [d]
  kQuery,          // [heads * head_dim, d]
  kKey,            // [kv_heads * head_dim, d]
  kValue,          // [kv_heads * head_dim, d]
  kQueryBias,      // [heads * head_dim]
  kKeyBias,        // [kv_heads * head_dim]
  kValueBias,      // [kv_heads * head_dim]
  kOutput,         // [d, heads * head_dim]
  kMlpNorm,        // [d]
  kGate,           // [ff, d]
  kUp,             // [ff, d]
  kDown,           // [d, ff]
  kFinalNorm,      // [d]
  kHead,           // [vocab, d]
};

// One tensor at a fixed place in its unit, so that an absent one shifts no neighbour.
struct TensorLayout {
  TensorRole role;
  std::string name;            // as in the model's file, such as "model.norm.weight"
  std::vector<int64_t> shape;  // one or two dimensions, row-major
  int64_t offset_elements;     // from the unit's start, a multiple of kTensorAlignmentElements
  int64_t element_count;       // product of shape
  bool decays;                 // weight decay applies: two or more dimensions
};

// Starts every tensor on a cache line in each plane, also in a 2-byte one.
inline constexpr int64_t kTensorAlignmentElements = 64;

// What streams as one piece.
struct UnitLayout {
  UnitKind kind;
  int layer_index;  // of a decoder layer; -1 otherwise
  std::vector<TensorLayout> tensors;
  int64_t element_count;  // with the padding between tensors and at the end

  // The tensor of that role, or nullptr when the unit has none.
  const TensorLayout* Find(TensorRole role) const;
};

// A whole model: unit 0 is the embedding, 1..L are the decoder layers, L + 1 is the head.
struct ModelLayout {
  std::vector<UnitLayout> units;
  bool tied;  // the head's matrix is the embedding's token table

  int layer_count() const { return static_cast<int>(units.size()) - 2; }
  int head_unit() const { return static_cast<int>(units.size()) - 1; }
  int64_t LargestUnitElements() const;
  int64_t TotalElements() const;  // with padding
};

// Requires a config that CheckTrainable accepts.
ModelLayout MakeModelLayout(const ModelConfig& config);

}  // namespace megatrain

#endif  // RUNTIME_CONFIG_MODEL_LAYOUT_H_
