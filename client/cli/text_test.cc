#include "client/cli/text.h"

#include <limits>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(TextTest, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes(int64_t{64} << 30), "64.0 GiB");
  EXPECT_EQ(FormatBytes(int64_t{123} << 20), "123 MiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<int64_t>::max()), "8192 PiB");
}

TEST(TextTest, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(9999), "9999");
  EXPECT_EQ(FormatCount(134'515'008), "134.5M");
  EXPECT_EQ(FormatCount(7'616'000'000), "7.62B");
}

TEST(TextTest, Spans) {
  EXPECT_EQ(FormatSpan(absl::Milliseconds(400)), "0.4 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(12)), "12 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(59.6)), "1 min 0 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(185)), "3 min 5 s");
  EXPECT_EQ(FormatSpan(absl::Minutes(130)), "2 h 10 min");
  EXPECT_EQ(FormatSpan(-absl::Seconds(3)), "0.0 s") << "clocks of two machines differ";
}

TEST(TextTest, Ages) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(FormatAge(time, absl::FromUnixSeconds(100)), "");
  time.set_seconds(40);
  EXPECT_EQ(FormatAge(time, absl::FromUnixSeconds(100)), "1 min 0 s");
}

TEST(TextTest, Names) {
  EXPECT_EQ(StateName(v1::JOB_STATE_QUEUED), "QUEUED");
  EXPECT_EQ(StateName(v1::DATASET_STATE_READY), "READY");
  EXPECT_EQ(StateName(v1::MODEL_STATE_IMPORTING), "IMPORTING");
  EXPECT_EQ(TriggerName(v1::CHECKPOINT_TRIGGER_PERIODIC), "PERIODIC");
  EXPECT_EQ(FullName("jobs", "a"), "jobs/a");
  EXPECT_EQ(FullName("jobs", "jobs/a"), "jobs/a");
  EXPECT_EQ(ShortName("models/a/versions/1"), "a/versions/1");
  EXPECT_EQ(ShortName("a"), "a");
}

TEST(TextTest, Sparklines) {
  EXPECT_EQ(Sparkline({}), "");
  EXPECT_EQ(Sparkline({1, 1}), "▄▄");
  EXPECT_EQ(Sparkline({8, 4, 0}), "█▄▁");
  EXPECT_EQ(ColumnsOf(Sparkline({1, 2, 3})), 3);
  EXPECT_EQ(ColumnsOf(Sparkline({1, std::numeric_limits<double>::infinity(), 3})), 3);
  EXPECT_EQ(ColumnsOf(Sparkline({std::numeric_limits<double>::quiet_NaN(), 1})), 2);
}

TEST(TextTest, NothingFromElsewhereSteersTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[31mb\x7f\nc"), "a?[31mb?\nc");
}

}  // namespace
}  // namespace megatrain
