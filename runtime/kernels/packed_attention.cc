#include "runtime/kernels/packed_attention.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/cudnn_attention.h"
#include "runtime/kernels/exact_attention.h"

namespace megatrain {
namespace {

absl::Status CheckShape(const AttentionShape& shape) {
  if (shape.max_tokens < 1 || shape.heads < 1 || shape.kv_heads < 1 ||
      shape.heads % shape.kv_heads != 0 || shape.window < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention: ", shape.heads, " heads over ", shape.kv_heads, " key heads, window ",
        shape.window, ", at most ", shape.max_tokens, " tokens"));
  }
  if (shape.head_dim < 8 || shape.head_dim > 256 || shape.head_dim % 8 != 0) {
    return absl::UnimplementedError(absl::StrCat("attention on the GPU: head_dim ", shape.head_dim,
                                                 " is no multiple of 8 up to 256"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedAttention>> MakePackedAttention(const AttentionShape& shape) {
  MT_RETURN_IF_ERROR(CheckShape(shape));
  if (CudnnServes(shape)) {
    return MakeCudnnAttention(shape);
  }
  return std::make_unique<ExactAttention>(shape);
}

}  // namespace megatrain
