#ifndef RUNTIME_DEVICE_VALUE_RANGE_H_
#define RUNTIME_DEVICE_VALUE_RANGE_H_

#include <cstdint>

namespace megatrain {

// Where some of an array's values lie.
struct ValueRange {
  int64_t offset;  // a multiple of 4
  int64_t count;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_VALUE_RANGE_H_
