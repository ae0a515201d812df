// What ReadCheckpoint sends.

#ifndef SERVER_API_CHECKPOINT_STREAM_H_
#define SERVER_API_CHECKPOINT_STREAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint_service.pb.h"
#include "server/api/follow_stream.h"
#include "server/checkpoints/checkpoint_catalog.h"

namespace megatrain {

// A range of one file in pieces; one empty piece for an empty range.
class CheckpointSource final : public FollowSource<v1::ReadCheckpointResponse> {
 public:
  CheckpointSource(CheckpointCatalog& catalog, v1::ReadCheckpointRequest request)
      : catalog_(catalog), request_(std::move(request)), offset_bytes_(request_.offset_bytes()) {}

  // NOT_FOUND; OUT_OF_RANGE for an offset behind the file's end.
  absl::StatusOr<std::optional<v1::ReadCheckpointResponse>> Next() override;
  bool IsLast(const v1::ReadCheckpointResponse& piece) const override;
  v1::ReadCheckpointResponse Heartbeat() const override;
  std::string Cursor() const override;

 private:
  absl::Status Open();

  CheckpointCatalog& catalog_;
  const v1::ReadCheckpointRequest request_;
  int64_t offset_bytes_;
  int64_t end_bytes_ = 0;
  CheckpointCatalog::OpenedFile opened_;  // from the first Next on
};

}  // namespace megatrain

#endif  // SERVER_API_CHECKPOINT_STREAM_H_
