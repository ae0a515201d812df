#include "runtime/kernels/matmul_call.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

constexpr auto kBfloat16 = ComputeDtype::kBfloat16;

MatrixView Matrix(int64_t rows, int64_t cols, int64_t stride, uintptr_t address = 4096) {
  return {reinterpret_cast<void*>(address), rows, cols, stride};
}

TEST(MatmulCall, ForwardIsTheTransposeInColumnMajor) {
  const MatrixView addend = Matrix(5, 24, 48, 1024);
  const auto call = ForwardCall(Matrix(5, 8, 16), Matrix(24, 8, 8), Matrix(5, 24, 32),
                                {.addend = &addend}, kBfloat16);
  ASSERT_TRUE(call.ok()) << call.status();
  const MatmulProblem expected = {.m = 24,
                                  .n = 5,
                                  .k = 8,
                                  .transpose_a = true,
                                  .transpose_b = false,
                                  .lda = 8,
                                  .ldb = 16,
                                  .ldc = 48,
                                  .ldd = 32,
                                  .input_dtype = kBfloat16,
                                  .output_dtype = kBfloat16,
                                  .has_bias = false};
  EXPECT_TRUE(call->problem == expected);
  EXPECT_EQ(call->problem.Operations(), 2.0 * 24 * 5 * 8);
  EXPECT_EQ(call->problem.ElementsOfA(), 24 * 8) << "the weight";
  EXPECT_EQ(call->problem.ElementsOfB(), 5 * 16) << "x";
  EXPECT_EQ(call->problem.ElementsOfD(), 5 * 48) << "the wider of addend and y";
  EXPECT_EQ(call->operands.c, addend.data);
  EXPECT_EQ(call->operands.beta, 1.0f);
}

TEST(MatmulCall, WhatIsNotAddedIsNotRead) {
  const auto call =
      ForwardCall(Matrix(5, 8, 8), Matrix(24, 8, 8), Matrix(5, 24, 24), {}, kBfloat16);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->operands.beta, 0.0f);
  EXPECT_EQ(call->operands.c, call->operands.d);
}

TEST(MatmulCall, WeightGradientsAreFloat) {
  const auto call = BackwardWeightCall(Matrix(5, 24, 24), Matrix(5, 8, 8),
                                       reinterpret_cast<float*>(4096), true, kBfloat16);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->problem.output_dtype, ComputeDtype::kFloat32);
  EXPECT_EQ(call->problem.ldd, 8);
  EXPECT_EQ(call->operands.beta, 1.0f);
}

TEST(MatmulCall, RefusesShapesThatDoNotFit) {
  const MatrixView weight = Matrix(24, 8, 8);
  EXPECT_EQ(ForwardCall(Matrix(5, 9, 9), weight, Matrix(5, 24, 24), {}, kBfloat16).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ForwardCall(Matrix(5, 8, 8), weight, Matrix(5, 23, 24), {}, kBfloat16).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ForwardCall(Matrix(5, 8, 7), weight, Matrix(5, 24, 24), {}, kBfloat16).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BackwardInputCall(Matrix(5, 23, 23), weight, Matrix(5, 8, 8), false, kBfloat16)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BackwardWeightCall(Matrix(5, 24, 24), Matrix(6, 8, 8), reinterpret_cast<float*>(4096),
                               false, kBfloat16)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MatmulCall, RefusesMisalignedMemory) {
  const auto call =
      ForwardCall(Matrix(5, 8, 8, 4096 + 8), Matrix(24, 8, 8), Matrix(5, 24, 24), {}, kBfloat16);
  ASSERT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(call.status().message().find("x must be 16-byte aligned"), absl::string_view::npos)
      << call.status();
}

TEST(MatmulCall, BiasAddendAndFloatOutputExcludeOneAnother) {
  const MatrixView y = Matrix(5, 24, 24);
  const auto call = ForwardCall(Matrix(5, 8, 8), Matrix(24, 8, 8), y,
                                {.addend = &y, .float_output = true}, kBfloat16);
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
