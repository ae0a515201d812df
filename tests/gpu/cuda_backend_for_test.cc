#include "tests/gpu/cuda_backend_for_test.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/trainer/cuda_backend.h"

namespace megatrain {

ComputeBackend& CudaBackendForTest() {
  static PosixFileSystem files;
  static const std::unique_ptr<ComputeBackend> backend = [] {
    auto made = MakeCudaBackend(/*matmul_choices_path=*/"", files);
    EXPECT_TRUE(made.ok()) << made.status();
    MT_CHECK(made.ok());
    return *std::move(made);
  }();
  return *backend;
}

}  // namespace megatrain
