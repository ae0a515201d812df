#include "runtime/checkpoint/manifest.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

CheckpointManifest Example() {
  CheckpointManifest manifest;
  manifest.progress = {.step = 120,
                       .update_count = 117,
                       .skipped_in_a_row = 1,
                       .rows_crc32c = 0x0badcafe,
                       .last_evaluation = EvaluationMark{120, 1.0 / 3},
                       .best_evaluation = EvaluationMark{100, 5e-324},
                       .evaluations_without_gain = 2};
  manifest.order = {.model_fingerprint = "model",
                    .data_fingerprint = "data",
                    .validation_fingerprint = "",
                    .validation_split = 0.1,
                    .seed = -3,
                    .batch_rows = 8,
                    .micro_batch_rows = 2,
                    .max_sequence_length = 1024,
                    .packing = true,
                    .compute_dtype = ComputeDtype::kBfloat16};
  manifest.schedule = {.shape = LearningRateShape::kCosine,
                       .peak = 1e-5,
                       .floor_ratio = 0.1,
                       .warmup_steps = 3,
                       .total_steps = 1000};
  manifest.unit_elements = {192, 1088, 64};
  manifest.trigger = CheckpointTrigger::kPause;
  manifest.create_time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  manifest.spec = "{\"any\": \"text\\n\"}";
  manifest.files = {{"adam_m.bin", 12'288, 7, {7}},
                    {"adam_v.bin", kCheckpointChunkBytes + 1, 0xFFFFFFFFu, {1, 0x80000000u}}};
  return manifest;
}

TEST(ManifestTest, ComesBackAsItWasWritten) {
  const CheckpointManifest manifest = Example();
  const absl::StatusOr<CheckpointManifest> read =
      ParseCheckpointManifest(SerializeManifest(manifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->progress, manifest.progress);
  EXPECT_EQ(read->order, manifest.order);
  EXPECT_EQ(read->schedule.peak, manifest.schedule.peak);
  EXPECT_EQ(read->schedule.shape, manifest.schedule.shape);
  EXPECT_EQ(read->schedule.floor_ratio, manifest.schedule.floor_ratio);
  EXPECT_EQ(read->schedule.warmup_steps, manifest.schedule.warmup_steps);
  EXPECT_EQ(read->schedule.total_steps, manifest.schedule.total_steps);
  EXPECT_EQ(read->unit_elements, manifest.unit_elements);
  EXPECT_EQ(read->trigger, manifest.trigger);
  EXPECT_EQ(read->create_time, manifest.create_time);
  EXPECT_EQ(read->spec, manifest.spec);
  EXPECT_EQ(read->files, manifest.files);
  EXPECT_EQ(read->SizeBytes(), 12'288 + kCheckpointChunkBytes + 1);
}

TEST(ManifestTest, ALossThatIsNotFiniteComesBackAsSuch) {
  CheckpointManifest manifest = Example();
  manifest.progress.last_evaluation->loss = std::numeric_limits<double>::infinity();
  manifest.progress.best_evaluation.reset();
  const auto read = ParseCheckpointManifest(SerializeManifest(manifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->progress.last_evaluation->loss != read->progress.last_evaluation->loss);
  EXPECT_FALSE(read->progress.best_evaluation.has_value());
}

// R14.
TEST(ManifestTest, NoBitCanChangeUnnoticed) {
  const std::string text = SerializeManifest(Example());
  for (size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_FALSE(ParseCheckpointManifest(changed).ok()) << at << " " << bit;
    }
    EXPECT_FALSE(ParseCheckpointManifest(text.substr(0, at)).ok()) << at;
  }
  EXPECT_FALSE(ParseCheckpointManifest(text + "\n").ok());
  EXPECT_FALSE(ParseCheckpointManifest("").ok());
}

TEST(ManifestTest, WrongFieldsAreNamed) {
  CheckpointManifest manifest = Example();
  manifest.progress.update_count = 121;
  EXPECT_NE(ParseCheckpointManifest(SerializeManifest(manifest))
                .status()
                .message()
                .find("progress.update_count"),
            absl::string_view::npos);
  manifest = Example();
  manifest.files[1].chunk_crc32c.pop_back();
  EXPECT_NE(ParseCheckpointManifest(SerializeManifest(manifest))
                .status()
                .message()
                .find("files.adam_v.bin.chunk_crc32c has 1 checksums for 2 pieces"),
            absl::string_view::npos);
  manifest = Example();
  manifest.files[0].name = "../adam_m.bin";
  EXPECT_EQ(ParseCheckpointManifest(SerializeManifest(manifest)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ManifestTest, TriggersHaveTheirNames) {
  EXPECT_EQ(TriggerName(CheckpointTrigger::kPeriodic), "periodic");
  EXPECT_EQ(TriggerName(CheckpointTrigger::kFinal), "final");
}

}  // namespace
}  // namespace megatrain
