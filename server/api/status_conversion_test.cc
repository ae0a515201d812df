#include "server/api/status_conversion.h"

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "server/api/status_for_test.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

google::rpc::Status DetailsOf(const absl::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(ToGrpcStatus(status).error_details()));
  return details;
}

template <typename Detail>
Detail Find(const google::rpc::Status& status) {
  Detail found;
  int count = 0;
  for (const auto& any : status.details()) {
    count += any.UnpackTo(&found) ? 1 : 0;
  }
  EXPECT_EQ(count, 1);
  return found;
}

TEST(StatusConversionTest, OkIsOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

TEST(StatusConversionTest, EveryErrorHasOneErrorInfo) {
  const auto info = Find<google::rpc::ErrorInfo>(DetailsOf(absl::DataLossError("torn")));
  EXPECT_EQ(info.reason(), "DATA_LOSS");
  EXPECT_EQ(info.domain(), "megatrain");
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(DetailsOf(ResourceNotFound("jobs/a"))).reason(),
            "RESOURCE_NOT_FOUND");
}

TEST(StatusConversionTest, EveryViolationArrives) {
  const absl::Status status =
      InvalidFields({{"spec.model", "is empty"}, {"spec.train.steps", "is negative"}});
  EXPECT_EQ(ToGrpcStatus(status).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Find<google::rpc::BadRequest>(DetailsOf(status));
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(1).field(), "spec.train.steps");
}

TEST(StatusConversionTest, RetryAndPreconditionArrive) {
  const absl::Status later = RetryLater("DRAINING", "the server stops", absl::Milliseconds(1500));
  const auto retry = Find<google::rpc::RetryInfo>(DetailsOf(later));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
  const absl::Status wrong = PreconditionFailed("jobs/a", "JOB_ENDED", "ended", {{"state", "x"}});
  EXPECT_EQ(Find<google::rpc::PreconditionFailure>(DetailsOf(wrong)).violations(0).subject(),
            "jobs/a");
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(DetailsOf(wrong)).metadata().at("state"), "x");
}

TEST(StatusConversionTest, ThereAndBack) {
  const absl::Status status = ResourceExists("datasets/a");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
}

TEST(StatusConversionTest, StaysWithinATrailer) {
  std::vector<FieldViolation> many(1000, {"spec.train", "ü is wrong"});
  const grpc::Status status = ToGrpcStatus(InvalidFields(many));
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 8000u);
  EXPECT_EQ(Find<google::rpc::ErrorInfo>(DetailsOf(InvalidFields(many))).reason(),
            "INVALID_FIELDS");
}

}  // namespace
}  // namespace megatrain
