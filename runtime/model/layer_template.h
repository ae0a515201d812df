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
  const void* device_tables = nullptr;        // what BindBatch wrote, where templates have tables
};

// What the head gives back for one micro-batch, in device memory.
struct HeadResult {
  double loss_sum = 0;           // of -log p(target), summed in fp64 in position order
  int32_t first_nonfinite = -1;  // index into loss_positions of the first loss that is not finite
};

// Device memory for what lives within one call. Handed out anew to every call; a template
// that needs more returns INTERNAL and never takes other memory of that size.
struct Workspace {
  void* data = nullptr;
  int64_t size_bytes = 0;
  void* stream = nullptr;  // what the call launches on: Launcher::native_stream
};

// Which activations a layer keeps from forward to backward; each level holds those before it.
// What is not kept is computed again, with the same bits.
enum class KeepLevel {
  kNothing,
  kAttention,    // attention's output and log-sum-exp
  kProjections,  // queries, keys, values
  kProducts,     // hidden states between the halves, gate and up: no product is computed again
  kAll,          // what norms and the activation function made of them: nothing is
};

inline constexpr int kKeepLevelCount = 5;

// Activations of a micro-batch start at a multiple of so many tokens, hence aligned whatever the
// hidden size is.
inline constexpr int64_t kActivationAlignmentTokens = 32;

// Where they lie: device memory of ModelTemplates::KeptTokenBytes a token, which backward may
// overwrite.
struct Kept {
  KeepLevel level = KeepLevel::kNothing;
  void* data = nullptr;
};

// All pointers are device memory, 64-byte aligned. Weights of a unit lie by its UnitLayout in
// compute dtype; gradient accumulators by the same layout in fp32, and calls ADD to them.
// Hidden states are [t, d] in compute dtype. One call at a time a template; calls are
// deterministic: equal inputs give equal bits, whatever the addresses.
class ModelTemplates {
 public:
  virtual ~ModelTemplates() = default;

  // Work of the host that must not fall into a step, such as plans and tables for this batch;
  // INVALID_ARGUMENT when the batch is not one. Called before the calls below, by another thread
  // than theirs; what the batch views lives until they are over.
  virtual absl::Status Prepare(const MicroBatch& /*batch*/) { return absl::OkStatus(); }

  // Device memory that BindBatch fills for one micro-batch, at most.
  virtual int64_t BatchTableBytes() const { return 0; }

  // Puts what the other calls read of the batch into `tables`, and stays valid with them.
  virtual absl::Status BindBatch(const MicroBatch& /*batch*/, void* /*tables*/,
                                 Workspace /*workspace*/) {
    return absl::OkStatus();
  }

  // What one layer keeps of a micro-batch, an even number of bytes for each of its tokens, these
  // rounded up to a multiple of kActivationAlignmentTokens; 0 where templates keep nothing.
  virtual int64_t KeptTokenBytes(KeepLevel /*level*/) const { return 0; }

  // True where Head and LayerBackward, when told that a unit's accumulators hold nothing yet, write
  // every tensor's gradient instead of adding to it, so that nobody need clear them before.
  virtual bool writes_first_gradients() const { return false; }

  // True where LayerForward notes rows of its input that are not finite, so that nobody need look
  // for them.
  virtual bool marks_inputs() const { return false; }

  // hidden = token_table[tokens].
  virtual absl::Status EmbedForward(const void* embedding_weights, const MicroBatch& batch,
                                    void* hidden, Workspace workspace) = 0;

  // Adds to the token table's accumulator, in token order.
  virtual absl::Status EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                                     float* embedding_gradients, Workspace workspace) = 0;

  // One layer and micro-batch, forward or backward.
  struct LayerArguments {
    int unit;
    const void* weights;
    const void* input;
    Kept kept;                          // forward writes it, backward reads it
    bool overwrites_gradients = false;  // backward, see writes_first_gradients
    // Forward, where templates mark inputs: becomes the first row with an infinity or NaN, unless
    // it is smaller already, -1 taken for the largest number. May be null.
    int32_t* input_mark = nullptr;
  };

  // output = layer(input). `output` may not be `input`.
  virtual absl::Status LayerForward(const LayerArguments& arguments, const MicroBatch& batch,
                                    void* output, Workspace workspace) = 0;

  // Recomputes from `input` what was not kept, adds to `gradients`; `hidden_gradient` is
  // d loss / d output before and d loss / d input after.
  virtual absl::Status LayerBackward(const LayerArguments& arguments, const MicroBatch& batch,
                                     void* hidden_gradient, float* gradients,
                                     Workspace workspace) = 0;

  // The head unit on one micro-batch's last boundary. `matrix` is [vocab, d]: the head unit's
  // own, or the embedding's token table when tied.
  struct HeadInput {
    const void* head_weights;
    const void* matrix;
    const void* hidden;
    HeadResult* result;  // written, device memory
  };

  // `matrix_gradient` is the matrix's fp32 accumulator (for a tied one the head's own, apart from
  // the embedding's). `loss_scale` is 1 / loss tokens of the whole step.
  struct HeadGradients {
    float* head;
    float* matrix;
    void* hidden;  // all of it is written, zero where no loss is computed
    double loss_scale;
    bool overwrites = false;  // see writes_first_gradients
  };

  // Final norm, output matrix and cross entropy in chunks of positions, forward and backward.
  virtual absl::Status Head(const HeadInput& input, const HeadGradients& gradients,
                            const MicroBatch& batch, Workspace workspace) = 0;

  // Loss alone, for evaluation: no gradient is touched.
  virtual absl::Status HeadLoss(const HeadInput& input, const MicroBatch& batch,
                                Workspace workspace) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_LAYER_TEMPLATE_H_
