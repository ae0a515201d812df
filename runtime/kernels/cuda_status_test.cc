#include "runtime/kernels/cuda_status.h"

#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

TEST(CudaStatusTest, NamesTheCallAndTheError) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "copy").ok());
  const absl::Status status = CudaStatus(cudaErrorInvalidValue, "copy of weights");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const std::string message(status.message());
  EXPECT_NE(message.find("copy of weights"), std::string::npos) << message;
  EXPECT_NE(message.find("cudaErrorInvalidValue"), std::string::npos) << message;
}

TEST(CudaStatusTest, LackOfMemoryIsToldApart) {
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "arena").code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace megatrain
