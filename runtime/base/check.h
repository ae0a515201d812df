// Programming errors abort, in release builds too.

#ifndef RUNTIME_BASE_CHECK_H_
#define RUNTIME_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Aborts with file, line and condition. For what only a bug in this project can make false;
// anything that input or environment can cause is an absl::Status.
#define MT_CHECK(condition)                                                              \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // RUNTIME_BASE_CHECK_H_
