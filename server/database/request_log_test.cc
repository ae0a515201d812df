#include "server/database/request_log.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

class RequestLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto database =
        Database::Open(::testing::TempDir() + "/" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                       {RequestLogMigration()});
    ASSERT_TRUE(database.ok()) << database.status();
    database_ = *std::move(database);
  }

  absl::StatusOr<std::string> Count(const RequestKey& key, absl::Time now = absl::UnixEpoch()) {
    return WriteOnce(*database_, key, now, [this](Connection&) -> absl::StatusOr<std::string> {
      return std::to_string(++effects_);
    });
  }

  std::unique_ptr<Database> database_;
  int effects_ = 0;
};

TEST_F(RequestLogTest, ARepeatGetsTheFirstAnswer) {
  EXPECT_EQ(*Count({"Make", "id-1", "payload"}), "1");
  EXPECT_EQ(*Count({"Make", "id-1", "payload"}), "1");
  EXPECT_EQ(*Count({"Make", "id-2", "payload"}), "2");
  EXPECT_EQ(*Count({"Other", "id-1", "payload"}), "3");
}

TEST_F(RequestLogTest, AnAnswerCanBeLookedFor) {
  const RequestKey key{"Make", "id-1", "payload"};
  EXPECT_EQ(*FindAnswer(*database_, key), std::nullopt);
  EXPECT_EQ(*Count(key), "1");
  EXPECT_EQ(*FindAnswer(*database_, key), "1");
  EXPECT_EQ(*FindAnswer(*database_, {"Make", "", "payload"}), std::nullopt);
  EXPECT_EQ(ReasonOf(FindAnswer(*database_, {"Make", "id-1", "other"}).status()),
            "REQUEST_ID_REUSED");
}

TEST_F(RequestLogTest, AnotherPayloadIsRefused) {
  EXPECT_EQ(*Count({"Make", "id-1", "payload"}), "1");
  const absl::Status status = Count({"Make", "id-1", "other"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "REQUEST_ID_REUSED");
  EXPECT_EQ(effects_, 1);
}

TEST_F(RequestLogTest, WithoutAnIdEveryRequestCounts) {
  EXPECT_EQ(*Count({"Make", "", "payload"}), "1");
  EXPECT_EQ(*Count({"Make", "", "payload"}), "2");
}

TEST_F(RequestLogTest, AFailedEffectIsNotKept) {
  const RequestKey key{"Make", "id-1", "payload"};
  const auto fail = [](Connection&) -> absl::StatusOr<std::string> {
    return absl::InternalError("no");
  };
  EXPECT_FALSE(WriteOnce(*database_, key, absl::UnixEpoch(), fail).ok());
  EXPECT_EQ(*Count(key), "1");
}

TEST_F(RequestLogTest, AnswersAreKeptSevenDays) {
  const absl::Time start = absl::UnixEpoch();
  const absl::Duration week = absl::Hours(7 * 24);
  EXPECT_EQ(*Count({"Make", "id-1", "payload"}, start), "1");
  EXPECT_EQ(*Count({"Make", "tick", "1"}, start + week), "2");
  EXPECT_EQ(*Count({"Make", "id-1", "payload"}, start + week), "1");
  EXPECT_EQ(*Count({"Make", "tock", ""}, start + week + absl::Seconds(1)), "3");
  EXPECT_EQ(*Count({"Make", "id-1", "payload"}, start + week + absl::Seconds(1)), "4");
}

}  // namespace
}  // namespace megatrain
