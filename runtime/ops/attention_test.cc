#include "runtime/ops/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 15;
constexpr int64_t kHeadDim = 16;

// Plain attention over one document, float64: query [S, H, C], key and value [S, K, C].
at::Tensor DocumentInFloat64(const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value) {
  const int64_t group = query.size(1) / key.size(1);
  const at::Tensor q = query.transpose(0, 1);
  const at::Tensor k = key.transpose(0, 1).repeat_interleave(group, 0);
  const at::Tensor v = value.transpose(0, 1).repeat_interleave(group, 0);
  const at::Tensor order = at::arange(query.size(0), at::kLong);
  const at::Tensor later = order.unsqueeze(0).gt(order.unsqueeze(1));
  const at::Tensor scores = q.bmm(k.transpose(1, 2))
                                .div(std::sqrt(static_cast<double>(kHeadDim)))
                                .masked_fill(later, -INFINITY);
  return at::softmax(scores, -1).bmm(v).transpose(0, 1);
}

struct Shape {
  int64_t heads;
  int64_t kv_heads;
  std::vector<int32_t> offsets;
};

struct Problem {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor gradient;
};

Problem MakeProblem(const Shape& shape, std::mt19937& random) {
  const int64_t tokens = shape.offsets.back();
  return {.query = RandomNormal({tokens, shape.heads, kHeadDim}, at::kFloat, random),
          .key = RandomNormal({tokens, shape.kv_heads, kHeadDim}, at::kFloat, random),
          .value = RandomNormal({tokens, shape.kv_heads, kHeadDim}, at::kFloat, random),
          .gradient = RandomNormal({tokens, shape.heads, kHeadDim}, at::kFloat, random)};
}

struct Outcome {
  at::Tensor out;
  AttentionGradients gradients;
};

Outcome RunOp(const Problem& problem, const std::vector<int32_t>& offsets) {
  const AttentionInput input = {.query_THC = problem.query.to(at::kFloat),
                                .key_TKC = problem.key.to(at::kFloat),
                                .value_TKC = problem.value.to(at::kFloat),
                                .document_offsets = offsets};
  const AttentionResult result = AttentionForward(input);
  const AttentionGradients gradients = {.query_THC = at::empty(problem.query.sizes(), at::kFloat),
                                        .key_TKC = at::empty(problem.key.sizes(), at::kFloat),
                                        .value_TKC = at::empty(problem.value.sizes(), at::kFloat)};
  AttentionBackward(input, result, problem.gradient.to(at::kFloat), gradients);
  return {.out = result.out_THC, .gradients = gradients};
}

class AttentionTest : public ::testing::TestWithParam<Shape> {};

TEST_P(AttentionTest, AgreesWithFloat64) {
  const Shape& shape = GetParam();
  std::mt19937 random(kSeed);
  const Problem problem = MakeProblem(shape, random);
  const Reference reference = Differentiate(
      [&](const std::vector<at::Tensor>& in) {
        std::vector<at::Tensor> documents;
        for (size_t i = 0; i + 1 < shape.offsets.size(); ++i) {
          const int64_t start = shape.offsets[i];
          const int64_t length = shape.offsets[i + 1] - start;
          if (length > 0) {
            documents.push_back(DocumentInFloat64(in[0].narrow(0, start, length),
                                                  in[1].narrow(0, start, length),
                                                  in[2].narrow(0, start, length)));
          }
        }
        return at::cat(documents, 0);
      },
      {problem.query, problem.key, problem.value}, problem.gradient);
  const Outcome ours = RunOp(problem, shape.offsets);
  EXPECT_LT(RelativeError(ours.out, reference.output), 2e-6);
  EXPECT_LT(RelativeError(ours.gradients.query_THC, reference.gradients[0]), 2e-6);
  EXPECT_LT(RelativeError(ours.gradients.key_TKC, reference.gradients[1]), 2e-6);
  EXPECT_LT(RelativeError(ours.gradients.value_TKC, reference.gradients[2]), 2e-6);
}

TEST_P(AttentionTest, IsDeterministic) {
  std::mt19937 random(kSeed);
  const Problem problem = MakeProblem(GetParam(), random);
  const Outcome first = RunOp(problem, GetParam().offsets);
  for (int i = 0; i < 5; ++i) {
    const Outcome again = RunOp(problem, GetParam().offsets);
    EXPECT_TRUE(SameBits(again.out, first.out));
    EXPECT_TRUE(SameBits(again.gradients.query_THC, first.gradients.query_THC));
    EXPECT_TRUE(SameBits(again.gradients.key_TKC, first.gradients.key_TKC));
    EXPECT_TRUE(SameBits(again.gradients.value_TKC, first.gradients.value_TKC));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Values(Shape{4, 4, {0, 7}}, Shape{4, 2, {0, 1, 2, 40, 71}},
                                           Shape{9, 3, {0, 31, 31, 62, 93}},
                                           Shape{6, 1, {0, 300, 1100}},
                                           Shape{2, 2, {0, 800, 801}}));

// Another document's content, and even its length, leaves a document's bits alone.
TEST(Attention, DocumentsDoNotTouchOneAnother) {
  std::mt19937 random(kSeed);
  const Shape shape = {.heads = 4, .kv_heads = 2, .offsets = {0, 40, 73}};
  const Problem problem = MakeProblem(shape, random);
  const Outcome first = RunOp(problem, shape.offsets);
  Problem changed = MakeProblem(shape, random);
  const auto keep = [](at::Tensor& to, const at::Tensor& from) {
    to.narrow(0, 40, 33).copy_(from.narrow(0, 40, 33));
  };
  keep(changed.query, problem.query);
  keep(changed.key, problem.key);
  keep(changed.value, problem.value);
  keep(changed.gradient, problem.gradient);
  const Outcome second = RunOp(changed, shape.offsets);
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return SameBits(a.narrow(0, 40, 33), b.narrow(0, 40, 33));
  };
  EXPECT_TRUE(same(first.out, second.out));
  EXPECT_TRUE(same(first.gradients.query_THC, second.gradients.query_THC));
  EXPECT_TRUE(same(first.gradients.key_TKC, second.gradients.key_TKC));
  EXPECT_TRUE(same(first.gradients.value_TKC, second.gradients.value_TKC));
  const Outcome split = RunOp(problem, {0, 16, 40, 73});
  EXPECT_TRUE(same(first.out, split.out));
  EXPECT_TRUE(same(first.gradients.key_TKC, split.gradients.key_TKC));
  EXPECT_FALSE(SameBits(first.out.narrow(0, 16, 24), split.out.narrow(0, 16, 24)));
}

}  // namespace
}  // namespace megatrain
