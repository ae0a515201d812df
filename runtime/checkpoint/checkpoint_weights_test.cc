#include "runtime/checkpoint/checkpoint_weights.h"

#include <stdlib.h>

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model_io/element_conversion.h"
#include "runtime/safetensors/tensor_dtype.h"

namespace megatrain {
namespace {

ModelLayout MakeLayout(const std::vector<int64_t>& unit_elements) {
  ModelLayout layout{.units = {}, .tied = true};
  for (const int64_t elements : unit_elements) {
    layout.units.push_back({UnitKind::kDecoderLayer, -1, {}, elements});
  }
  return layout;
}

class CheckpointWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "/weights_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    store_ = *HostStore::Create(layout_, {});
    std::mt19937 random(1);
    for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
      for (int64_t i = 0; i < layout_.units[unit].element_count; ++i) {
        store_->hi(static_cast<int>(unit))[i] = static_cast<uint16_t>(random() % 0x7000);
        store_->lo(static_cast<int>(unit))[i] = static_cast<int16_t>(random());
      }
    }
    CheckpointManifest manifest;
    manifest.progress.step = 3;
    manifest.unit_elements = UnitElements(layout_);
    auto written = WriteCheckpoint(*store_, manifest, folder, files_);
    ASSERT_TRUE(written.ok()) << written.status();
    checkpoint_ = written->checkpoint;
  }

  const ModelLayout layout_ = MakeLayout({192, 5056, 64});  // the second is of several blocks
  PosixFileSystem files_;
  std::unique_ptr<HostStore> store_;
  Checkpoint checkpoint_;
};

TEST_F(CheckpointWeightsTest, AreThoseOfTheStoreInEveryUnitAndDtype) {
  const auto weights = CheckpointWeights::Open(checkpoint_, layout_, files_);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (int unit = 0; unit < 3; ++unit) {
    for (const TensorDtype dtype : {TensorDtype::kF32, TensorDtype::kBf16}) {
      for (const int64_t first : {0, 17}) {
        const int64_t count = layout_.units[unit].element_count - first;
        std::string expected(count * SizeBytes(dtype), '\0');
        std::string got = expected;
        EncodeElements(dtype, store_->hi(unit) + first, store_->lo(unit) + first, count,
                       expected.data());
        const auto nonfinite = (*weights)->Encode(unit, first, dtype, {got.data(), got.size()});
        ASSERT_TRUE(nonfinite.ok()) << nonfinite.status();
        EXPECT_EQ(*nonfinite, -1);
        EXPECT_EQ(got, expected) << "unit " << unit << " from " << first;
      }
    }
  }
}

TEST_F(CheckpointWeightsTest, ADamagedPlaneOfWeightsIsRefusedAndAMomentDoesNotMatter) {
  std::fstream(checkpoint_.path + "/adam_m.bin", std::ios::in | std::ios::out) << "x";
  EXPECT_TRUE(CheckpointWeights::Open(checkpoint_, layout_, files_).ok());
  std::fstream(checkpoint_.path + "/weights_lo.bin", std::ios::in | std::ios::out) << "x";
  EXPECT_TRUE(absl::IsDataLoss(CheckpointWeights::Open(checkpoint_, layout_, files_).status()));
}

TEST_F(CheckpointWeightsTest, AnotherModelIsRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(
      CheckpointWeights::Open(checkpoint_, MakeLayout({192, 5056}), files_).status()));
}

}  // namespace
}  // namespace megatrain
