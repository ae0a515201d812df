#include "runtime/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"
#include "runtime/kernels/matmul_call.h"
#include "runtime/kernels/matmul_choices.h"

namespace megatrain {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A dense matrix on the host, and its strided copy on the GPU whose padding is NaN: what reads
// the padding shows, and so does what writes it.
class TestMatrix {
 public:
  TestMatrix(ComputeDtype dtype, int64_t rows, int64_t cols, int64_t padding, uint64_t seed,
             int64_t shift_bytes = 0)
      : TestMatrix(dtype, rows, cols, padding, RandomNumbers(dtype, rows * cols, seed),
                   shift_bytes) {}
  TestMatrix(ComputeDtype dtype, int64_t rows, int64_t cols, int64_t padding,
             std::vector<float> values, int64_t shift_bytes = 0)
      : values_(std::move(values)),
        rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        memory_(dtype, rows * stride_, shift_bytes) {
    std::vector<float> padded(rows * stride_, kNan);
    for (int64_t i = 0; i < rows * cols; ++i) {
      padded[i / cols * stride_ + i % cols] = values_[i];
    }
    memory_.Upload(padded);
  }

  MatrixView View() { return {memory_.data(), rows_, cols_, stride_}; }
  double At(int64_t row, int64_t col) const { return values_[row * cols_ + col]; }

  // The dense matrix as the GPU left it.
  std::vector<float> Download() {
    const std::vector<float> padded = memory_.Download();
    std::vector<float> dense;
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      if (i % stride_ < cols_) {
        dense.push_back(padded[i]);
      } else {
        EXPECT_TRUE(std::isnan(padded[i])) << "padding written at " << i;
      }
    }
    return dense;
  }

 private:
  std::vector<float> values_;
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  DeviceNumbers memory_;
};

void ExpectClose(const std::vector<float>& actual, const std::vector<double>& expected,
                 double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(difference / norm), tolerance);
  // No single element is far off either.
  const double spread = std::sqrt(norm / static_cast<double>(actual.size()));
  ExpectNear(actual, expected, 0, 10 * tolerance * spread);
}

struct Size {
  int64_t tokens, in, out, padding;
};

class Matmul : public testing::TestWithParam<std::tuple<ComputeDtype, Size>> {
 protected:
  void SetUp() override {
    auto multiplier = MatrixMultiplier::Create();
    ASSERT_TRUE(multiplier.ok()) << multiplier.status();
    multiplier_ = *std::move(multiplier);
  }

  ComputeDtype dtype() const { return std::get<0>(GetParam()); }
  Size size() const { return std::get<1>(GetParam()); }
  // Relative error of a sum of `terms` products in fp32. Tensor cores cut bits off where the other
  // units round: their error grows with the terms. TF32 would be off by 3e-4.
  double FloatTolerance(int64_t terms) const {
    const double rounding = 5e-7 + 2e-7 * std::sqrt(static_cast<double>(terms));
    return dtype() == ComputeDtype::kFloat32 ? rounding : rounding + 5e-9 * terms;
  }
  double Tolerance(int64_t terms) const {
    return dtype() == ComputeDtype::kFloat32 ? FloatTolerance(terms) : 5e-3;
  }
  MatmulContext Context() { return {scratch_.data(), nullptr}; }

  TestMatrix X(int64_t shift_bytes = 0) const {
    return TestMatrix(dtype(), size().tokens, size().in, size().padding, 1, shift_bytes);
  }
  TestMatrix Weight(int64_t shift_bytes = 0) const {
    return TestMatrix(dtype(), size().out, size().in, size().padding, 2, shift_bytes);
  }
  TestMatrix Dy(int64_t shift_bytes = 0) const {
    return TestMatrix(dtype(), size().tokens, size().out, size().padding, 3, shift_bytes);
  }
  // NaN throughout.
  TestMatrix Empty(ComputeDtype output, int64_t cols, int64_t shift_bytes = 0) const {
    return TestMatrix(output, size().tokens, cols, size().padding,
                      std::vector<float>(size().tokens * cols, kNan), shift_bytes);
  }

  // x W^T
  std::vector<double> Product(const TestMatrix& x, const TestMatrix& weight) const {
    std::vector<double> y(size().tokens * size().out);
    for (int64_t i = 0; i < size().tokens; ++i) {
      for (int64_t j = 0; j < size().out; ++j) {
        for (int64_t k = 0; k < size().in; ++k) {
          y[i * size().out + j] += x.At(i, k) * weight.At(j, k);
        }
      }
    }
    return y;
  }

  // dy^T x
  std::vector<double> WeightGradient(const TestMatrix& dy, const TestMatrix& x) const {
    std::vector<double> gradient(size().out * size().in);
    for (int64_t k = 0; k < size().tokens; ++k) {
      for (int64_t i = 0; i < size().out; ++i) {
        for (int64_t j = 0; j < size().in; ++j) {
          gradient[i * size().in + j] += dy.At(k, i) * x.At(k, j);
        }
      }
    }
    return gradient;
  }

  std::unique_ptr<MatrixMultiplier> multiplier_;
  DeviceArray<unsigned char> scratch_{MatrixMultiplier::kScratchBytes};
};

TEST_P(Matmul, Forward) {
  TestMatrix x = X();
  TestMatrix weight = Weight();
  TestMatrix y = Empty(dtype(), size().out);
  ASSERT_EQ(multiplier_->Forward(x.View(), weight.View(), y.View(), {}, dtype(), Context()),
            absl::OkStatus());
  ExpectClose(y.Download(), Product(x, weight), Tolerance(size().in));
}

TEST_P(Matmul, ForwardWithBias) {
  TestMatrix x = X();
  TestMatrix weight = Weight();
  TestMatrix y = Empty(dtype(), size().out);
  // Far larger than the product: left out, or taken by row, it would show at once.
  const std::vector<float> bias = RandomNumbers(dtype(), size().out, 5, 30);
  DeviceNumbers device_bias(dtype(), bias);
  ASSERT_EQ(multiplier_->Forward(x.View(), weight.View(), y.View(), {.bias = device_bias.data()},
                                 dtype(), Context()),
            absl::OkStatus());
  std::vector<double> expected = Product(x, weight);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] += bias[i % size().out];
  }
  ExpectClose(y.Download(), expected, Tolerance(size().in));
}

TEST_P(Matmul, ForwardWithAddendOutOfPlaceAndInPlace) {
  TestMatrix x = X();
  TestMatrix weight = Weight();
  TestMatrix addend(dtype(), size().tokens, size().out, 2 * size().padding, 6);
  std::vector<double> expected = Product(x, weight);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] += addend.At(i / size().out, i % size().out);
  }
  TestMatrix y = Empty(dtype(), size().out);
  const MatrixView view = addend.View();
  ASSERT_EQ(multiplier_->Forward(x.View(), weight.View(), y.View(), {.addend = &view}, dtype(),
                                 Context()),
            absl::OkStatus());
  ExpectClose(y.Download(), expected, Tolerance(size().in));
  ASSERT_EQ(
      multiplier_->Forward(x.View(), weight.View(), view, {.addend = &view}, dtype(), Context()),
      absl::OkStatus());
  ExpectClose(addend.Download(), expected, Tolerance(size().in));
}

TEST_P(Matmul, ForwardIntoFloats) {
  TestMatrix x = X();
  TestMatrix weight = Weight();
  TestMatrix y = Empty(ComputeDtype::kFloat32, size().out);
  ASSERT_EQ(multiplier_->Forward(x.View(), weight.View(), y.View(), {.float_output = true}, dtype(),
                                 Context()),
            absl::OkStatus());
  ExpectClose(y.Download(), Product(x, weight), FloatTolerance(size().in));
}

TEST_P(Matmul, BackwardInputWritesAndAccumulates) {
  TestMatrix dy = Dy();
  TestMatrix weight = Weight();
  std::vector<double> product(size().tokens * size().in);
  for (int64_t i = 0; i < size().tokens; ++i) {
    for (int64_t k = 0; k < size().out; ++k) {
      for (int64_t j = 0; j < size().in; ++j) {
        product[i * size().in + j] += dy.At(i, k) * weight.At(k, j);
      }
    }
  }
  TestMatrix written = Empty(dtype(), size().in);
  ASSERT_EQ(multiplier_->BackwardInput(dy.View(), weight.View(), written.View(), false, dtype(),
                                       Context()),
            absl::OkStatus());
  ExpectClose(written.Download(), product, Tolerance(size().out));

  TestMatrix added(dtype(), size().tokens, size().in, size().padding, 7);
  for (size_t i = 0; i < product.size(); ++i) {
    product[i] += added.At(i / size().in, i % size().in);
  }
  ASSERT_EQ(
      multiplier_->BackwardInput(dy.View(), weight.View(), added.View(), true, dtype(), Context()),
      absl::OkStatus());
  ExpectClose(added.Download(), product, Tolerance(size().out));
}

TEST_P(Matmul, BackwardWeightWritesAndAccumulatesInFloats) {
  TestMatrix dy = Dy();
  TestMatrix x = X();
  std::vector<double> product = WeightGradient(dy, x);
  DeviceArray<float> gradient(size().out * size().in);
  ASSERT_EQ(
      multiplier_->BackwardWeight(dy.View(), x.View(), gradient.data(), false, dtype(), Context()),
      absl::OkStatus());
  ExpectClose(gradient.Download(), product, FloatTolerance(size().tokens));

  const std::vector<float> before = RandomNumbers(ComputeDtype::kFloat32, gradient.count(), 8);
  gradient.Upload(before);
  ASSERT_EQ(
      multiplier_->BackwardWeight(dy.View(), x.View(), gradient.data(), true, dtype(), Context()),
      absl::OkStatus());
  for (size_t i = 0; i < product.size(); ++i) {
    product[i] += before[i];
  }
  ExpectClose(gradient.Download(), product, FloatTolerance(size().tokens));
}

TEST_P(Matmul, EqualBitsAtOtherAddressesAndFromAnotherMultiplier) {
  std::vector<std::vector<float>> runs;
  for (const int64_t shift_bytes : {0, 16, 80}) {
    TestMatrix x = X(shift_bytes);
    TestMatrix weight = Weight(shift_bytes);
    TestMatrix dy = Dy(shift_bytes);
    TestMatrix y = Empty(dtype(), size().out, shift_bytes);
    TestMatrix dx = Empty(dtype(), size().in, shift_bytes);
    DeviceArray<float> dw(size().out * size().in, shift_bytes);
    scratch_.Poison();
    SetUp();
    ASSERT_EQ(multiplier_->Forward(x.View(), weight.View(), y.View(), {}, dtype(), Context()),
              absl::OkStatus());
    ASSERT_EQ(
        multiplier_->BackwardInput(dy.View(), weight.View(), dx.View(), false, dtype(), Context()),
        absl::OkStatus());
    ASSERT_EQ(
        multiplier_->BackwardWeight(dy.View(), x.View(), dw.data(), false, dtype(), Context()),
        absl::OkStatus());
    std::vector<float> all = y.Download();
    for (const std::vector<float>& part : {dx.Download(), dw.Download()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    runs.push_back(std::move(all));
  }
  EXPECT_TRUE(runs[0] == runs[1]);
  EXPECT_TRUE(runs[0] == runs[2]);
}

TEST_P(Matmul, EveryChoiceIsRightAndRepeats) {
  TestMatrix x = X();
  TestMatrix weight = Weight();
  TestMatrix dy = Dy();
  const std::vector<double> product = Product(x, weight);
  const std::vector<double> gradient = WeightGradient(dy, x);
  for (int choice = 0; choice < kMatmulCandidates; ++choice) {
    SCOPED_TRACE(choice);
    std::vector<std::vector<float>> products;
    std::vector<std::vector<float>> gradients;
    for (const int64_t shift_bytes : {0, 16}) {
      TestMatrix y = Empty(dtype(), size().out, shift_bytes);
      DeviceArray<float> dw(size().out * size().in, shift_bytes);
      const auto forward = ForwardCall(x.View(), weight.View(), y.View(), {}, dtype());
      const auto backward = BackwardWeightCall(dy.View(), x.View(), dw.data(), false, dtype());
      ASSERT_TRUE(forward.ok() && backward.ok());
      const auto multiplier =
          MatrixMultiplier::Create({{forward->problem, choice}, {backward->problem, choice}});
      ASSERT_TRUE(multiplier.ok()) << multiplier.status();
      scratch_.Poison();
      ASSERT_EQ((*multiplier)->Forward(x.View(), weight.View(), y.View(), {}, dtype(), Context()),
                absl::OkStatus());
      ASSERT_EQ(
          (*multiplier)->BackwardWeight(dy.View(), x.View(), dw.data(), false, dtype(), Context()),
          absl::OkStatus());
      products.push_back(y.Download());
      gradients.push_back(dw.Download());
    }
    ExpectClose(products[0], product, Tolerance(size().in));
    ExpectClose(gradients[0], gradient, FloatTolerance(size().tokens));
    EXPECT_TRUE(products[0] == products[1]);
    EXPECT_TRUE(gradients[0] == gradients[1]);
  }
}

TEST_P(Matmul, ChoicesMeasuredForMoreTokensServeFewer) {
  TestMatrix x = X();
  TestMatrix weight = Weight();
  TestMatrix dy = Dy();
  TestMatrix y = Empty(dtype(), size().out);
  DeviceArray<float> dw(size().out * size().in);
  const auto forward = ForwardCall(x.View(), weight.View(), y.View(), {}, dtype());
  const auto backward = BackwardWeightCall(dy.View(), x.View(), dw.data(), false, dtype());
  ASSERT_TRUE(forward.ok() && backward.ok());
  MatmulProblem longer_forward = forward->problem;
  longer_forward.n *= 2;
  MatmulProblem longer_backward = backward->problem;
  longer_backward.k *= 2;
  for (int choice = 0; choice < kMatmulCandidates; ++choice) {
    SCOPED_TRACE(choice);
    const auto multiplier =
        MatrixMultiplier::Create({{longer_forward, choice}, {longer_backward, choice}});
    ASSERT_TRUE(multiplier.ok()) << multiplier.status();
    scratch_.Poison();
    ASSERT_EQ((*multiplier)->Forward(x.View(), weight.View(), y.View(), {}, dtype(), Context()),
              absl::OkStatus());
    ASSERT_EQ(
        (*multiplier)->BackwardWeight(dy.View(), x.View(), dw.data(), false, dtype(), Context()),
        absl::OkStatus());
    ExpectClose(y.Download(), Product(x, weight), Tolerance(size().in));
    ExpectClose(dw.Download(), WeightGradient(dy, x), FloatTolerance(size().tokens));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Matmul,
    testing::Combine(testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                     testing::Values(Size{1, 64, 64, 0}, Size{67, 72, 200, 8},
                                     Size{256, 320, 128, 64},
                                     // Odd widths and strides, as of a vocabulary.
                                     Size{33, 64, 151, 3},
                                     // A long sum over few outputs: tempts to split it.
                                     Size{8192, 48, 40, 0}, Size{24, 8192, 64, 0})),
    [](const auto& param) {
      const Size size = std::get<1>(param.param);
      return std::string(DtypeName(std::get<0>(param.param))) + "_" + std::to_string(size.tokens) +
             "x" + std::to_string(size.in) + "x" + std::to_string(size.out);
    });

}  // namespace
}  // namespace megatrain
