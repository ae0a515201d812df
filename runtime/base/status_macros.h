// Early return for absl::Status and absl::StatusOr.

#ifndef RUNTIME_BASE_STATUS_MACROS_H_
#define RUNTIME_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define MT_CONCAT_INNER_(a, b) a##b
#define MT_CONCAT_(a, b) MT_CONCAT_INNER_(a, b)

// Evaluates `expression`, an absl::Status, and returns it from the function when it is no OK.
#define MT_RETURN_IF_ERROR(expression)                              \
  do {                                                              \
    if (absl::Status mt_status_ = (expression); !mt_status_.ok()) { \
      return mt_status_;                                            \
    }                                                               \
  } while (false)

// MT_ASSIGN_OR_RETURN(auto value, F()): the value of an absl::StatusOr, or its error returned.
#define MT_ASSIGN_OR_RETURN(lhs, expression) \
  MT_ASSIGN_OR_RETURN_IMPL_(MT_CONCAT_(mt_status_or_, __LINE__), lhs, expression)
#define MT_ASSIGN_OR_RETURN_IMPL_(name, lhs, expression) \
  auto name = (expression);                              \
  if (!name.ok()) {                                      \
    return name.status();                                \
  }                                                      \
  lhs = *std::move(name)

#endif  // RUNTIME_BASE_STATUS_MACROS_H_
