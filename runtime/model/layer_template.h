// The stateless code of one kind of unit: what the pipeline calls and the model implements.
// Nothing of LibTorch here, so that schedule and pipeline build and test without it.

#ifndef RUNTIME_MODEL_LAYER_TEMPLATE_H_
#define RUNTIME_MODEL_LAYER_TEMPLATE_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

enum class ComputeDtype { kFloat32, kBfloat16 };

inline int64_t SizeBytes(ComputeDtype dtype) { return dtype == ComputeDtype::kFloat32 ? 4 : 2; }

// Token-major rows of one micro-batch: documents one after another, without padding.
// Attention never leaves a document; positions restart in each. t = tokens.size().
struct MicroBatch {
  std::span<const int32_t> tokens;            // [t]
  std::span<const int32_t> positions;         // [t], from 0 in each document
  std::span<const int32_t> document_offsets;  // [documents + 1], first 0, last t
  std::span<const int32_t> loss_positions;    // [n], ascending: where a loss is computed
  std::span<const int32_t> loss_targets;      // [n], the token to predict at each of those
};

// What the head gives back for one micro-batch.
struct HeadResult {
  double loss_sum = 0;       // of -log p(target), summed in fp64 in position order
  int first_nonfinite = -1;  // index into loss_positions of the first loss that is not finite
};

// Device memory for what lives within one call. Handed out anew to every call; a template
// that needs more returns INTERNAL and never takes other memory of that size.
struct Workspace {
  void* data = nullptr;
  int64_t size_bytes = 0;
};

// All pointers are device memory, 64-byte aligned. Weights of a unit lie by its UnitLayout in
// compute dtype; gradient accumulators by the same layout in fp32, and calls ADD to them.
// Hidden states are [t, d] in compute dtype. One call at a time a template; calls are
// deterministic: equal inputs give equal bits, whatever the addresses.
class ModelTemplates {
 public:
  virtual ~ModelTemplates() = default;

  // hidden = token_table[tokens].
  virtual absl::Status EmbedForward(const void* embedding_weights, const MicroBatch& batch,
                                    void* hidden, Workspace workspace) = 0;

  // Adds to the token table's accumulator, in token order.
  virtual absl::Status EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                                     float* embedding_gradients, Workspace workspace) = 0;

  // output = layer(input). `output` may not be `input`.
  virtual absl::Status LayerForward(int unit, const void* weights, const MicroBatch& batch,
                                    const void* input, void* output, Workspace workspace) = 0;

  // Recomputes from `input`, adds to `gradients`; `hidden_gradient` is d loss / d output before
  // and d loss / d input after.
  virtual absl::Status LayerBackward(int unit, const void* weights, const MicroBatch& batch,
                                     const void* input, void* hidden_gradient, float* gradients,
                                     Workspace workspace) = 0;

  // Final norm, output matrix and cross entropy in chunks of positions, forward and backward.
  // `matrix` is [vocab, d]: the head unit's own, or the embedding's token table when tied, and
  // `matrix_gradient` its fp32 accumulator (for a tied one the head's own accumulator, apart
  // from the embedding's). `loss_scale` is 1 / loss tokens of the whole step. Writes all of
  // `hidden_gradient` (zero where no loss is computed).
  struct HeadArguments {
    const void* head_weights;  // the head unit
    const void* matrix;
    const void* input;
    float* head_gradients;
    float* matrix_gradient;
    void* hidden_gradient;
    double loss_scale;
  };
  virtual absl::StatusOr<HeadResult> Head(const HeadArguments& arguments, const MicroBatch& batch,
                                          Workspace workspace) = 0;

  // Loss alone, for evaluation: no gradient is touched.
  virtual absl::StatusOr<HeadResult> HeadLoss(const void* head_weights, const void* matrix,
                                              const void* input, const MicroBatch& batch,
                                              Workspace workspace) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_LAYER_TEMPLATE_H_
