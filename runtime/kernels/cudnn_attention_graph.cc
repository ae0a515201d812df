#include "runtime/kernels/cudnn_attention_graph.h"

#include <cudnn_frontend.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

absl::Status FrontendStatus(fe::error_t error, const char* what) {
  if (error.is_good()) {
    return absl::OkStatus();
  }
  const std::string message = absl::StrCat("cuDNN, ", what, ": ", error.get_message());
  switch (error.get_code()) {
    case fe::error_code_t::GRAPH_NOT_SUPPORTED:
    case fe::error_code_t::HEURISTIC_QUERY_FAILED:  // no engine for it
    case fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

// A graph of one operation over packed rows. All tensors of rows have the batch's dimensions and
// the packed rows' strides. Ragged ones also have a table of where each document begins.
class PackedGraph {
 public:
  PackedGraph(const AttentionShape& shape, const AttentionBucket& bucket, fe::graph::Graph& graph)
      : shape_(shape), bucket_(bucket), graph_(graph) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (!bucket_.even) {
      lengths_ = Index(kLengths, bucket_.documents, fe::DataType_t::INT32);
      qkv_offsets_ = Offsets(kQkvOffsets);
      out_offsets_ = Offsets(kOutOffsets);
      log_sum_exp_offsets_ = Offsets(kLogSumExpOffsets);
    }
  }

  void AddForward() {
    auto attributes = fe::graph::SDPA_attributes().set_generate_stats(true);
    SetCommon(attributes);
    auto [out, log_sum_exp] = graph_.sdpa(Query(), Key(), Value(), attributes);
    SetRows(*out, kOut, shape_.heads, shape_.OutWidth(), out_offsets_);
    SetLogSumExp(*log_sum_exp);
    out->set_output(true);
    log_sum_exp->set_output(true);
  }

  void AddBackward() {
    auto attributes = fe::graph::SDPA_backward_attributes();
    if (!bucket_.even) {
      // Without these there would be memory for every document at the longest one's length.
      attributes.set_max_total_seq_len_q(shape_.max_tokens)
          .set_max_total_seq_len_kv(shape_.max_tokens);
    }
    SetCommon(attributes);
    attributes.set_deterministic_algorithm(shape_.mode == AttentionMode::kDeterministic);
    fe::graph::Tensor_attributes log_sum_exp;
    SetLogSumExp(log_sum_exp);
    auto [query, key, value] = graph_.sdpa_backward(
        Query(), Key(), Value(), Rows(kOut, shape_.heads, shape_.OutWidth(), out_offsets_),
        Rows(kOutGradient, shape_.heads, shape_.OutWidth(), out_offsets_),
        graph_.tensor(log_sum_exp), attributes);
    SetRows(*query, kQueryGradient, shape_.heads, shape_.QkvWidth(), qkv_offsets_);
    const Tensor key_offsets = bucket_.even ? nullptr : Offsets(kKeyOffsets);
    const int64_t width = bucket_.even ? shape_.QkvWidth() : shape_.KeyWidth();
    SetRows(*key, kKeyGradient, shape_.kv_heads, width, key_offsets);
    SetRows(*value, kValueGradient, shape_.kv_heads, width, key_offsets);
    for (const Tensor& gradient : {query, key, value}) {
      gradient->set_output(true);
    }
  }

 private:
  Tensor Query() { return Rows(kQuery, shape_.heads, shape_.QkvWidth(), qkv_offsets_); }
  Tensor Key() { return Rows(kKey, shape_.kv_heads, shape_.QkvWidth(), qkv_offsets_); }
  Tensor Value() { return Rows(kValue, shape_.kv_heads, shape_.QkvWidth(), qkv_offsets_); }

  template <typename Attributes>
  void SetCommon(Attributes& attributes) {
    attributes.set_name("attention")
        .set_attn_scale(1.0f / std::sqrt(static_cast<float>(shape_.head_dim)))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (!bucket_.even) {
      attributes.set_padding_mask(true).set_seq_len_q(lengths_).set_seq_len_kv(lengths_);
    }
    if (shape_.window > 0) {
      attributes.set_diagonal_band_left_bound(shape_.window);
    }
  }

  Tensor Index(AttentionTensorId id, int64_t count, fe::DataType_t type) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  }
  Tensor Offsets(AttentionTensorId id) {
    return Index(id, bucket_.documents + 1, fe::DataType_t::INT64);
  }

  // Null offsets: dense.
  void SetRows(fe::graph::Tensor_attributes& tensor, AttentionTensorId id, int64_t heads,
               int64_t row_width, const Tensor& offsets) const {
    tensor.set_uid(id)
        .set_dim({bucket_.documents, heads, bucket_.longest, shape_.head_dim})
        .set_stride({bucket_.longest * row_width, shape_.head_dim, row_width, 1})
        .set_ragged_offset(offsets);
  }

  Tensor Rows(AttentionTensorId id, int64_t heads, int64_t row_width, const Tensor& offsets) {
    fe::graph::Tensor_attributes tensor;
    SetRows(tensor, id, heads, row_width, offsets);
    return graph_.tensor(tensor);
  }

  // Ragged: token-major, since with head-major ones cuDNN's backward gives zeros. Dense:
  // head-major, the one order that a dense backward reads correctly before cuDNN 9.26.
  void SetLogSumExp(fe::graph::Tensor_attributes& tensor) const {
    tensor.set_uid(kLogSumExp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({bucket_.documents, shape_.heads, bucket_.longest, 1})
        .set_ragged_offset(log_sum_exp_offsets_);
    const int64_t document = bucket_.longest * shape_.heads;
    if (bucket_.even) {
      tensor.set_stride({document, bucket_.longest, 1, 1});
    } else {
      tensor.set_stride({document, 1, shape_.heads, 1});
    }
  }

  const AttentionShape& shape_;
  const AttentionBucket& bucket_;
  fe::graph::Graph& graph_;
  Tensor lengths_, qkv_offsets_, out_offsets_, log_sum_exp_offsets_;  // null in an even bucket
};

class FrontendGraph final : public CudnnAttentionGraph {
 public:
  fe::graph::Graph& graph() { return graph_; }

  absl::Status Run(cudnnHandle_t handle, AttentionPointers& pointers,
                   void* workspace) const override {
    return FrontendStatus(graph_.execute(handle, pointers, workspace), "attention");
  }

 private:
  fe::graph::Graph graph_;
};

// Chooses the plan.
absl::Status Finish(const AttentionShape& shape, cudnnHandle_t handle, fe::graph::Graph& graph,
                    const char* what) {
  MT_RETURN_IF_ERROR(FrontendStatus(graph.build(handle, {fe::HeurMode_t::A}), what));
  int64_t workspace_bytes = 0;
  MT_RETURN_IF_ERROR(FrontendStatus(graph.get_workspace_size(workspace_bytes), what));
  if (workspace_bytes > CudnnWorkspaceBytes(shape)) {
    return absl::ResourceExhaustedError(absl::StrCat("cuDNN, ", what, ": a plan asks for ",
                                                     workspace_bytes, " bytes, more than the ",
                                                     CudnnWorkspaceBytes(shape), " set aside"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const CudnnAttentionGraph>> Build(const AttentionShape& shape,
                                                                 const AttentionBucket& bucket,
                                                                 cudnnHandle_t handle,
                                                                 void (PackedGraph::*add)(),
                                                                 const char* what) {
  auto built = std::make_unique<FrontendGraph>();
  try {
    PackedGraph graph(shape, bucket, built->graph());
    (graph.*add)();
    MT_RETURN_IF_ERROR(Finish(shape, handle, built->graph(), what));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("cuDNN, ", what, ": ", error.what()));
  }
  return built;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const CudnnAttentionGraph>> BuildAttentionForward(
    const AttentionShape& shape, const AttentionBucket& bucket, cudnnHandle_t handle) {
  return Build(shape, bucket, handle, &PackedGraph::AddForward, "attention forward");
}

absl::StatusOr<std::unique_ptr<const CudnnAttentionGraph>> BuildAttentionBackward(
    const AttentionShape& shape, const AttentionBucket& bucket, cudnnHandle_t handle) {
  return Build(shape, bucket, handle, &PackedGraph::AddBackward, "attention backward");
}

}  // namespace megatrain
