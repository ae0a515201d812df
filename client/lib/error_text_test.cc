#include "client/lib/error_text.h"

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

google::rpc::ErrorInfo Info(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  return info;
}

template <typename... Details>
grpc::Status RpcError(grpc::StatusCode code, const std::string& message,
                      const Details&... details) {
  google::rpc::Status status;
  (status.add_details()->PackFrom(details), ...);
  return grpc::Status(code, message, status.SerializeAsString());
}

TEST(ErrorTextTest, OkStaysOk) { EXPECT_TRUE(StatusFromRpc(grpc::Status::OK).ok()); }

TEST(ErrorTextTest, KeepsCodeMessageAndReason) {
  google::rpc::ErrorInfo info = Info("HOST_MEMORY_EXCEEDED");
  (*info.mutable_metadata())["needed"] = "7";
  const absl::Status status =
      StatusFromRpc(RpcError(grpc::StatusCode::FAILED_PRECONDITION, "job does not fit", info));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorMetadata(status, "needed"), "7");
  const ErrorText text = DescribeError(status);
  EXPECT_EQ(text.what, "job does not fit");
  EXPECT_EQ(text.reason, "HOST_MEMORY_EXCEEDED");
  EXPECT_THAT(text.because, IsEmpty());
}

TEST(ErrorTextTest, WhatTheServerCancelledIsNoInterruption) {
  const absl::Status status = StatusFromRpc(RpcError(grpc::StatusCode::CANCELLED, ""));
  EXPECT_EQ(status, absl::UnavailableError("the server ended the call"));
}

TEST(ErrorTextTest, ListsEveryWrongField) {
  google::rpc::BadRequest bad;
  for (const char* field : {"spec.model", "spec.train.epochs"}) {
    auto* violation = bad.add_field_violations();
    violation->set_field(field);
    violation->set_description("must be set");
  }
  const ErrorText text = DescribeError(
      StatusFromRpc(RpcError(grpc::StatusCode::INVALID_ARGUMENT, "long joined text", bad)));
  EXPECT_EQ(text.what, "2 fields are wrong");
  EXPECT_THAT(text.because,
              ElementsAre("spec.model: must be set", "spec.train.epochs: must be set"));
}

TEST(ErrorTextTest, SaysACauseOnce) {
  google::rpc::PreconditionFailure failure;
  failure.add_violations()->set_description("same words");
  failure.add_violations()->set_description("Adam moments 0.87 TiB");
  const ErrorText text = DescribeError(
      StatusFromRpc(RpcError(grpc::StatusCode::FAILED_PRECONDITION, "same words", failure)));
  EXPECT_THAT(text.because, ElementsAre("Adam moments 0.87 TiB"));
}

TEST(ErrorTextTest, AHintOfTheClientLooksLikeOneOfTheServer) {
  const absl::Status status =
      WithHint(WithClientReason(absl::NotFoundError("no file x"), "FILE_NOT_FOUND"), "make x");
  const ErrorText text = DescribeError(status);
  EXPECT_EQ(text.hint, "make x");
  EXPECT_EQ(text.reason, "FILE_NOT_FOUND");
}

TEST(ErrorTextTest, ReadsTheWaitThatTheServerAsksFor) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(2);
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  EXPECT_EQ(RetryDelay(StatusFromRpc(RpcError(grpc::StatusCode::UNAVAILABLE, "x", retry))),
            absl::Seconds(2.5));
  EXPECT_EQ(RetryDelay(absl::UnavailableError("x")), absl::ZeroDuration());
}

TEST(ErrorTextTest, GarbageInTheDetailsHarmsNothing) {
  const ErrorText text = DescribeError(StatusFromRpc(
      grpc::Status(grpc::StatusCode::INTERNAL, "boom", std::string("\xff\x00garbage", 9))));
  EXPECT_EQ(text.what, "boom");
  EXPECT_EQ(text.reason, "");
}

TEST(ErrorTextTest, AnErrorWithoutWordsGetsItsCode) {
  EXPECT_EQ(DescribeError(absl::InternalError("")).what, "INTERNAL");
}

}  // namespace
}  // namespace megatrain
