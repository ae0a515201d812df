#include "runtime/kernels/cudnn_attention.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/cudnn_attention_graph.h"
#include "runtime/kernels/exact_attention.h"
#include "runtime/kernels/join_rows.h"

namespace megatrain {
namespace {

absl::Status CudnnStatus(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(what, ": ", cudnnGetErrorString(status)));
}

// Forward and backward of one bucket, which agree on the order of log_sum_exp.
struct Plan {
  AttentionBucket bucket;
  std::unique_ptr<const CudnnAttentionGraph> forward;
  std::unique_ptr<const CudnnAttentionGraph> backward;  // null: on ExactAttention's kernels
};
using PlanPointer = std::shared_ptr<const Plan>;

// ExactAttention reads the log_sum_exp of ragged forwards alone.
bool BackwardMayBeExact(const AttentionShape& shape, const AttentionBucket& bucket,
                        const absl::Status& refusal) {
  return !bucket.even && shape.mode == AttentionMode::kDeterministic &&
         (absl::IsResourceExhausted(refusal) || absl::IsUnimplemented(refusal));
}

absl::StatusOr<PlanPointer> BuildPlan(const AttentionShape& shape, const AttentionBucket& bucket,
                                      cudnnHandle_t handle) {
  auto plan = std::make_shared<Plan>(Plan{.bucket = bucket, .forward = {}, .backward = {}});
  MT_ASSIGN_OR_RETURN(plan->forward, BuildAttentionForward(shape, bucket, handle));
  auto backward = BuildAttentionBackward(shape, bucket, handle);
  if (backward.ok()) {
    plan->backward = *std::move(backward);
  } else if (!BackwardMayBeExact(shape, bucket, backward.status())) {
    return backward.status();
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
    const AttentionBucket bucket = BucketOf(counts);
    MutexLock building(&build_mutex_);
    if (Find(bucket) != nullptr) {
      return absl::OkStatus();
    }
    MT_ASSIGN_OR_RETURN(PlanPointer plan,
                        bucket.even ? EvenPlan(counts) : RaggedPlan(RaggedBucketOf(counts)));
    Keep(bucket, std::move(plan));
    return absl::OkStatus();
  }

  absl::Status Forward(const AttentionTensors& tensors, const AttentionBatch& batch,
                       const AttentionContext& context) override {
    MT_ASSIGN_OR_RETURN(const PlanPointer plan, PlanOf(batch.counts));
    AttentionPointers pointers = CommonPointers(*plan, tensors, batch);
    return Run(*plan->forward, pointers, context.scratch, context.stream);
  }

  absl::Status Backward(const AttentionTensors& tensors, const AttentionBatch& batch,
                        const AttentionContext& context) override {
    MT_ASSIGN_OR_RETURN(const PlanPointer plan, PlanOf(batch.counts));
    if (plan->backward == nullptr) {
      return exact_.Backward(tensors, batch, context);
    }
    const bool even = plan->bucket.even;
    const int64_t part_bytes = KeyGradientBytes(shape_);
    void* workspace = Offset(context.scratch, 2 * part_bytes);
    const KeyGradients gradients =
        even ? KeyGradients{.key = KeysOf(tensors.qkv_gradient),
                            .value = ValuesOf(tensors.qkv_gradient)}
             : KeyGradients{.key = context.scratch, .value = Offset(context.scratch, part_bytes)};
    AttentionPointers pointers = CommonPointers(*plan, tensors, batch);
    pointers[kOutGradient] = Writable(tensors.out_gradient);
    pointers[kQueryGradient] = tensors.qkv_gradient;
    pointers[kKeyGradient] = gradients.key;
    pointers[kValueGradient] = gradients.value;
    if (!even) {
      pointers[kKeyOffsets] = Table(batch, TablesOf(batch).key_offsets);
    }
    MT_RETURN_IF_ERROR(Run(*plan->backward, pointers, workspace, context.stream));
    return even ? absl::OkStatus() : Join(gradients, tensors, batch, context.stream);
  }

 private:
  static constexpr int64_t kLongestStep = 512;

  struct KeyGradients {
    void* key;
    void* value;
  };

  AttentionBucket RaggedBucketOf(const AttentionCounts& counts) const {
    const auto documents = static_cast<uint64_t>(counts.documents);
    const int64_t longest = (counts.longest + kLongestStep - 1) / kLongestStep * kLongestStep;
    return {.documents = static_cast<int64_t>(std::bit_ceil(documents)),
            .longest = std::min(longest, shape_.max_tokens),
            .even = false};
  }

  // Even buckets are exact, so that each of them costs Prepare's time again. Lengths in steps,
  // which those are that text is cut to, keep them few: a lone document of another length has none.
  AttentionBucket BucketOf(const AttentionCounts& counts) const {
    const bool even = counts.documents * counts.longest == counts.tokens;
    if (even && counts.longest % kLongestStep == 0 && HasEvenPlans()) {
      return {.documents = counts.documents, .longest = counts.longest, .even = true};
    }
    return RaggedBucketOf(counts);
  }

  // Of the head sizes that models have, and that are tested.
  bool HasEvenPlans() const { return shape_.head_dim == 64 || shape_.head_dim == 128; }

  // Even graphs are a matter of speed alone: where cuDNN does not serve one, or not in the memory
  // that it may have, ragged ones serve the same micro-batches. That depends on the bucket alone,
  // so that a run's bits do not depend on anything else.
  absl::StatusOr<PlanPointer> EvenPlan(const AttentionCounts& counts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(build_mutex_) {
    absl::StatusOr<PlanPointer> plan = BuildPlan(shape_, BucketOf(counts), build_handle_);
    const bool refused =
        absl::IsUnimplemented(plan.status()) || absl::IsResourceExhausted(plan.status());
    return refused ? RaggedPlan(RaggedBucketOf(counts)) : std::move(plan);
  }

  absl::StatusOr<PlanPointer> RaggedPlan(const AttentionBucket& bucket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(build_mutex_) {
    if (PlanPointer plan = Find(bucket); plan != nullptr) {
      return plan;
    }
    MT_ASSIGN_OR_RETURN(PlanPointer plan, BuildPlan(shape_, bucket, build_handle_));
    Keep(bucket, plan);
    return plan;
  }

  void Keep(const AttentionBucket& bucket, PlanPointer plan) {
    MutexLock lock(&plans_mutex_);
    plans_.emplace(bucket, std::move(plan));
  }

  PlanPointer Find(const AttentionBucket& bucket) {
    MutexLock lock(&plans_mutex_);
    const auto found = plans_.find(bucket);
    return found == plans_.end() ? nullptr : found->second;
  }

  absl::StatusOr<PlanPointer> PlanOf(const AttentionCounts& counts) {
    if (PlanPointer plan = Find(BucketOf(counts)); plan != nullptr) {
      return plan;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("attention was not prepared for ", counts.tokens, " tokens in ",
                     counts.documents, " documents, the longest of ", counts.longest));
  }

  AttentionTables TablesOf(const AttentionBatch& batch) const {
    return AttentionTablesOf(shape_, batch.counts.tokens, batch.counts.documents);
  }

  static void* Table(const AttentionBatch& batch, int64_t offset_bytes) {
    return Offset(Writable(batch.tables), offset_bytes);
  }

  // Within rows of QkvWidth.
  void* KeysOf(void* qkv) const { return Offset(qkv, shape_.OutWidth() * SizeBytes(shape_.dtype)); }
  void* ValuesOf(void* qkv) const {
    return Offset(KeysOf(qkv), shape_.KeyWidth() * SizeBytes(shape_.dtype));
  }

  AttentionPointers CommonPointers(const Plan& plan, const AttentionTensors& tensors,
                                   const AttentionBatch& batch) const {
    void* qkv = Writable(tensors.qkv);
    AttentionPointers pointers = {{kQuery, qkv},
                                  {kKey, KeysOf(qkv)},
                                  {kValue, ValuesOf(qkv)},
                                  {kOut, tensors.out},
                                  {kLogSumExp, tensors.log_sum_exp}};
    if (!plan.bucket.even) {
      const AttentionTables tables = TablesOf(batch);
      pointers[kLengths] = Table(batch, tables.lengths);
      pointers[kQkvOffsets] = Table(batch, tables.qkv_offsets);
      pointers[kOutOffsets] = Table(batch, tables.out_offsets);
      pointers[kLogSumExpOffsets] = Table(batch, tables.log_sum_exp_offsets);
    }
    return pointers;
  }

  absl::Status Run(const CudnnAttentionGraph& graph, AttentionPointers& pointers, void* workspace,
                   cudaStream_t stream) const {
    MT_RETURN_IF_ERROR(CudnnStatus(cudnnSetStream(run_handle_, stream), "cudnnSetStream"));
    return graph.Run(run_handle_, pointers, workspace);
  }

  absl::Status Join(const KeyGradients& gradients, const AttentionTensors& tensors,
                    const AttentionBatch& batch, cudaStream_t stream) const {
    const int64_t size = SizeBytes(shape_.dtype);
    return LaunchJoinRows({.left = gradients.key,
                           .right = gradients.value,
                           .target = KeysOf(tensors.qkv_gradient),
                           .stride_bytes = shape_.QkvWidth() * size,
                           .width_bytes = shape_.KeyWidth() * size,
                           .rows = batch.counts.tokens},
                          stream);
  }

  const AttentionShape shape_;
  ExactAttention exact_;
  Mutex build_mutex_;
  const cudnnHandle_t build_handle_ ABSL_GUARDED_BY(build_mutex_);
  const cudnnHandle_t run_handle_;
  Mutex plans_mutex_;
  std::map<AttentionBucket, PlanPointer> plans_ ABSL_GUARDED_BY(plans_mutex_);
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
