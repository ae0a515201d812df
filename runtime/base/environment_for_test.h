#ifndef RUNTIME_BASE_ENVIRONMENT_FOR_TEST_H_
#define RUNTIME_BASE_ENVIRONMENT_FOR_TEST_H_

#include <cstdlib>
#include <string>

#include "runtime/base/check.h"

namespace megatrain {

// A variable of the test's environment, which must be set: TEST_TMPDIR, MEGATRAIN_DEPS.
inline std::string EnvironmentForTest(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  MT_CHECK(value != nullptr);
  return value;
}

}  // namespace megatrain

#endif  // RUNTIME_BASE_ENVIRONMENT_FOR_TEST_H_
