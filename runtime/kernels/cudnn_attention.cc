#include "runtime/kernels/cudnn_attention.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/exact_attention.h"
#include "runtime/kernels/join_rows.h"

namespace megatrain {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<int64_t, void*>;

enum TensorId : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kLogSumExp,
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kLengths,
  kQkvOffsets,
  kOutOffsets,
  kKeyOffsets,
  kLogSumExpOffsets,
};

absl::Status CudnnStatus(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(what, ": ", cudnnGetErrorString(status)));
}

absl::Status FrontendStatus(fe::error_t error, const char* what) {
  if (error.is_good()) {
    return absl::OkStatus();
  }
  const std::string message = absl::StrCat("cuDNN, ", what, ": ", error.get_message());
  return error.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED
             ? absl::UnimplementedError(message)
             : absl::InternalError(message);
}

// What a plan is made for: padded documents, and the padded length of the longest.
struct Bucket {
  int64_t documents;
  int64_t longest;
  auto operator<=>(const Bucket&) const = default;
};

// A graph of one operation over packed rows. Ragged tensors have the padded batch's dimensions,
// the packed rows' strides, and a table of where each document begins.
class PackedGraph {
 public:
  PackedGraph(const AttentionShape& shape, const Bucket& bucket, fe::graph::Graph& graph)
      : shape_(shape), bucket_(bucket), graph_(graph) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    lengths_ = Index(kLengths, bucket_.documents, fe::DataType_t::INT32);
    qkv_offsets_ = Index(kQkvOffsets, bucket_.documents + 1, fe::DataType_t::INT64);
    out_offsets_ = Index(kOutOffsets, bucket_.documents + 1, fe::DataType_t::INT64);
    log_sum_exp_offsets_ = Index(kLogSumExpOffsets, bucket_.documents + 1, fe::DataType_t::INT64);
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
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_max_total_seq_len_q(shape_.max_tokens)
                          .set_max_total_seq_len_kv(shape_.max_tokens);
    SetCommon(attributes);
    attributes.set_deterministic_algorithm(shape_.mode == AttentionMode::kDeterministic);
    fe::graph::Tensor_attributes log_sum_exp;
    SetLogSumExp(log_sum_exp);
    auto [query, key, value] = graph_.sdpa_backward(
        Query(), Key(), Value(), Rows(kOut, shape_.heads, shape_.OutWidth(), out_offsets_),
        Rows(kOutGradient, shape_.heads, shape_.OutWidth(), out_offsets_),
        graph_.tensor(log_sum_exp), attributes);
    SetRows(*query, kQueryGradient, shape_.heads, shape_.QkvWidth(), qkv_offsets_);
    // Dense, unlike the others: cuDNN spreads a group's gradients over rows as many times as wide.
    const Tensor key_offsets = Index(kKeyOffsets, bucket_.documents + 1, fe::DataType_t::INT64);
    SetRows(*key, kKeyGradient, shape_.kv_heads, shape_.KeyWidth(), key_offsets);
    SetRows(*value, kValueGradient, shape_.kv_heads, shape_.KeyWidth(), key_offsets);
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
        .set_padding_mask(true)
        .set_seq_len_q(lengths_)
        .set_seq_len_kv(lengths_)
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (shape_.window > 0) {
      attributes.set_diagonal_band_left_bound(shape_.window);
    }
  }

  Tensor Index(TensorId id, int64_t count, fe::DataType_t type) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(id)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  }

  void SetRows(fe::graph::Tensor_attributes& tensor, TensorId id, int64_t heads, int64_t row_width,
               const Tensor& offsets) const {
    tensor.set_uid(id)
        .set_dim({bucket_.documents, heads, bucket_.longest, shape_.head_dim})
        .set_stride({bucket_.longest * row_width, shape_.head_dim, row_width, 1})
        .set_ragged_offset(offsets);
  }

  Tensor Rows(TensorId id, int64_t heads, int64_t row_width, const Tensor& offsets) {
    fe::graph::Tensor_attributes tensor;
    SetRows(tensor, id, heads, row_width, offsets);
    return graph_.tensor(tensor);
  }

  // Token-major: with head-major ones cuDNN's backward gives zeros.
  void SetLogSumExp(fe::graph::Tensor_attributes& tensor) const {
    tensor.set_uid(kLogSumExp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({bucket_.documents, shape_.heads, bucket_.longest, 1})
        .set_stride({bucket_.longest * shape_.heads, 1, shape_.heads, 1})
        .set_ragged_offset(log_sum_exp_offsets_);
  }

  const AttentionShape& shape_;
  const Bucket& bucket_;
  fe::graph::Graph& graph_;
  Tensor lengths_, qkv_offsets_, out_offsets_, log_sum_exp_offsets_;
};

struct Plan {
  fe::graph::Graph forward;
  fe::graph::Graph backward;
  bool backward_is_exact = false;  // on ExactAttention's kernels
};

// RESOURCE_EXHAUSTED when the plan would use more memory than it will be given.
absl::Status BuildGraph(const AttentionShape& shape, cudnnHandle_t handle, fe::graph::Graph& graph,
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

absl::StatusOr<std::shared_ptr<const Plan>> BuildPlan(const AttentionShape& shape,
                                                      const Bucket& bucket, cudnnHandle_t handle) {
  auto plan = std::make_shared<Plan>();
  PackedGraph(shape, bucket, plan->forward).AddForward();
  MT_RETURN_IF_ERROR(BuildGraph(shape, handle, plan->forward, "attention forward"));
  PackedGraph(shape, bucket, plan->backward).AddBackward();
  const absl::Status built = BuildGraph(shape, handle, plan->backward, "attention backward");
  plan->backward_is_exact = shape.mode == AttentionMode::kDeterministic &&
                            (absl::IsResourceExhausted(built) || absl::IsUnimplemented(built));
  if (!plan->backward_is_exact) {
    MT_RETURN_IF_ERROR(built);
  }
  return plan;
}

void* Offset(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

// The graph API takes all pointers as void*, and writes to its outputs alone.
void* Writable(const void* memory) { return const_cast<void*>(memory); }

class CudnnAttention final : public PackedAttention {
 public:
  CudnnAttention(const AttentionShape& shape, cudnnHandle_t build_handle, cudnnHandle_t run_handle)
      : shape_(shape), exact_(shape), build_handle_(build_handle), run_handle_(run_handle) {}
  ~CudnnAttention() override {
    cudnnDestroy(build_handle_);
    cudnnDestroy(run_handle_);
  }

  absl::Status Prepare(const AttentionCounts& counts) override {
    if (counts.documents < 1 || counts.longest < 1 || counts.longest > counts.tokens ||
        counts.tokens > shape_.max_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention of ", counts.tokens, " tokens in ", counts.documents,
                       " documents, the longest of ", counts.longest,
                       ", where a micro-batch has at most ", shape_.max_tokens));
    }
    const Bucket bucket = BucketOf(counts);
    MutexLock building(&build_mutex_);
    if (Find(bucket) != nullptr) {
      return absl::OkStatus();
    }
    try {
      MT_ASSIGN_OR_RETURN(auto plan, BuildPlan(shape_, bucket, build_handle_));
      MutexLock lock(&plans_mutex_);
      plans_.emplace(bucket, std::move(plan));
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat("cuDNN, attention: ", error.what()));
    }
    return absl::OkStatus();
  }

  absl::Status Forward(const AttentionTensors& tensors, const AttentionBatch& batch,
                       const AttentionContext& context) override {
    MT_ASSIGN_OR_RETURN(const auto plan, PlanOf(batch));
    Pointers pointers = CommonPointers(tensors, batch);
    return Execute(plan->forward, pointers, context.scratch, context.stream);
  }

  absl::Status Backward(const AttentionTensors& tensors, const AttentionBatch& batch,
                        const AttentionContext& context) override {
    MT_ASSIGN_OR_RETURN(const auto plan, PlanOf(batch));
    if (plan->backward_is_exact) {
      return exact_.Backward(tensors, batch, context);
    }
    const int64_t part_bytes = KeyGradientBytes(shape_);
    void* key_gradient = context.scratch;
    void* value_gradient = Offset(key_gradient, part_bytes);
    Pointers pointers = CommonPointers(tensors, batch);
    pointers[kOutGradient] = Writable(tensors.out_gradient);
    pointers[kQueryGradient] = tensors.qkv_gradient;
    pointers[kKeyGradient] = key_gradient;
    pointers[kValueGradient] = value_gradient;
    pointers[kKeyOffsets] = Table(batch, TablesOf(batch).key_offsets);
    MT_RETURN_IF_ERROR(
        Execute(plan->backward, pointers, Offset(value_gradient, part_bytes), context.stream));
    const int64_t size = SizeBytes(shape_.dtype);
    return LaunchJoinRows({.left = key_gradient,
                           .right = value_gradient,
                           .target = Offset(tensors.qkv_gradient, shape_.OutWidth() * size),
                           .stride_bytes = shape_.QkvWidth() * size,
                           .width_bytes = shape_.KeyWidth() * size,
                           .rows = batch.counts.tokens},
                          context.stream);
  }

 private:
  Bucket BucketOf(const AttentionCounts& counts) const {
    constexpr int64_t kStep = 512;
    const auto documents = static_cast<uint64_t>(counts.documents);
    return {.documents = static_cast<int64_t>(std::bit_ceil(documents)),
            .longest = std::min((counts.longest + kStep - 1) / kStep * kStep, shape_.max_tokens)};
  }

  std::shared_ptr<const Plan> Find(const Bucket& bucket) {
    MutexLock lock(&plans_mutex_);
    const auto found = plans_.find(bucket);
    return found == plans_.end() ? nullptr : found->second;
  }

  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const AttentionBatch& batch) {
    if (auto plan = Find(BucketOf(batch.counts)); plan != nullptr) {
      return plan;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("attention was not prepared for ", batch.counts.documents,
                     " documents, the longest of ", batch.counts.longest, " tokens"));
  }

  AttentionTables TablesOf(const AttentionBatch& batch) const {
    return AttentionTablesOf(shape_, batch.counts.tokens, batch.counts.documents);
  }

  static void* Table(const AttentionBatch& batch, int64_t offset_bytes) {
    return Offset(Writable(batch.tables), offset_bytes);
  }

  Pointers CommonPointers(const AttentionTensors& tensors, const AttentionBatch& batch) const {
    const AttentionTables tables = TablesOf(batch);
    const int64_t size = SizeBytes(shape_.dtype);
    void* qkv = Writable(tensors.qkv);
    return {{kQuery, qkv},
            {kKey, Offset(qkv, shape_.OutWidth() * size)},
            {kValue, Offset(qkv, (shape_.OutWidth() + shape_.KeyWidth()) * size)},
            {kOut, tensors.out},
            {kLogSumExp, tensors.log_sum_exp},
            {kLengths, Table(batch, tables.lengths)},
            {kQkvOffsets, Table(batch, tables.qkv_offsets)},
            {kOutOffsets, Table(batch, tables.out_offsets)},
            {kLogSumExpOffsets, Table(batch, tables.log_sum_exp_offsets)}};
  }

  absl::Status Execute(const fe::graph::Graph& graph, Pointers& pointers, void* workspace,
                       cudaStream_t stream) const {
    MT_RETURN_IF_ERROR(CudnnStatus(cudnnSetStream(run_handle_, stream), "cudnnSetStream"));
    return FrontendStatus(graph.execute(run_handle_, pointers, workspace), "attention");
  }

  const AttentionShape shape_;
  ExactAttention exact_;
  Mutex build_mutex_;
  const cudnnHandle_t build_handle_ ABSL_GUARDED_BY(build_mutex_);
  const cudnnHandle_t run_handle_;
  Mutex plans_mutex_;
  std::map<Bucket, std::shared_ptr<const Plan>> plans_ ABSL_GUARDED_BY(plans_mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<PackedAttention>> MakeCudnnAttention(const AttentionShape& shape) {
  cudnnHandle_t build_handle = nullptr;
  MT_RETURN_IF_ERROR(CudnnStatus(cudnnCreate(&build_handle), "cudnnCreate"));
  cudnnHandle_t run_handle = nullptr;
  if (absl::Status created = CudnnStatus(cudnnCreate(&run_handle), "cudnnCreate"); !created.ok()) {
    cudnnDestroy(build_handle);
    return created;
  }
  return std::make_unique<CudnnAttention>(shape, build_handle, run_handle);
}

}  // namespace megatrain
