#include "runtime/config/shapes.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(ShapesTest, HaveTheirModelsParameterCounts) {
  // As the models' cards say, a tied matrix once.
  EXPECT_EQ(ShapeByName("qwen2.5-1.5b")->ParameterCount(), 1'543'714'304);
  EXPECT_EQ(ShapeByName("qwen2.5-7b")->ParameterCount(), 7'615'616'512);
  EXPECT_EQ(ShapeByName("qwen2.5-14b")->ParameterCount(), 14'770'033'664);
  EXPECT_EQ(ShapeByName("qwen2.5-32b")->ParameterCount(), 32'763'876'352);
  EXPECT_EQ(ShapeByName("qwen2.5-72b")->ParameterCount(), 72'706'203'648);
}

TEST(ShapesTest, CanAllBeTrained) {
  for (const std::string& name : ShapeNames()) {
    EXPECT_TRUE(CheckTrainable(*ShapeByName(name)).ok()) << name;
  }
}

TEST(ShapesTest, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const absl::Status status = ShapeByName("qwen").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("qwen2.5-72b"), std::string::npos);
}

TEST(ShapesTest, ResizesLayersAndWidth) {
  const ModelConfig config = Resized(*ShapeByName("qwen2.5-7b"), 3, 0.5).value();
  EXPECT_EQ(config.layer_count, 3);
  EXPECT_EQ(config.layer_uses_window.size(), 3);
  EXPECT_EQ(config.head_count, 14);
  EXPECT_EQ(config.kv_head_count, 2);
  EXPECT_EQ(config.hidden_size, 1792);
  EXPECT_EQ(config.mlp_width, 9472);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(Resized(*ShapeByName("qwen2.5-7b"), 0, 1.0)->layer_count, 28);
  EXPECT_FALSE(Resized(*ShapeByName("qwen2.5-7b"), 0, 0.3).ok());
}

}  // namespace
}  // namespace megatrain
