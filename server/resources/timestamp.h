#ifndef SERVER_RESOURCES_TIMESTAMP_H_
#define SERVER_RESOURCES_TIMESTAMP_H_

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace megatrain {

inline google::protobuf::Timestamp TimestampOf(absl::Time time) {
  const timespec parts = absl::ToTimespec(time);
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(parts.tv_sec);
  timestamp.set_nanos(static_cast<int32_t>(parts.tv_nsec));
  return timestamp;
}

inline absl::Time TimeOf(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

}  // namespace megatrain

#endif  // SERVER_RESOURCES_TIMESTAMP_H_
