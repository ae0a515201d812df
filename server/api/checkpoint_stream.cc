#include "server/api/checkpoint_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

}  // namespace

absl::Status CheckpointSource::Open() {
  MT_ASSIGN_OR_RETURN(opened_, catalog_.OpenFile(request_.name(), request_.path()));
  const int64_t size_bytes = opened_.file->size_bytes();
  if (offset_bytes_ < 0 || offset_bytes_ > size_bytes || request_.limit_bytes() < 0) {
    return WithReason(absl::OutOfRangeError(absl::StrCat(
                          "offset ", offset_bytes_, " with limit ", request_.limit_bytes(),
                          " is not within the ", size_bytes, " bytes of ", request_.path())),
                      "OFFSET_OUT_OF_RANGE", {{"size_bytes", absl::StrCat(size_bytes)}});
  }
  const int64_t left_bytes = size_bytes - offset_bytes_;
  end_bytes_ =
      offset_bytes_ +
      (request_.limit_bytes() == 0 ? left_bytes : std::min(request_.limit_bytes(), left_bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::ReadCheckpointResponse>> CheckpointSource::Next() {
  if (opened_.file == nullptr) {
    MT_RETURN_IF_ERROR(Open());
  }
  std::string data(std::min(kPieceBytes, end_bytes_ - offset_bytes_), '\0');
  MT_RETURN_IF_ERROR(opened_.file->ReadAt(offset_bytes_, {data.data(), data.size()}));
  v1::ReadCheckpointResponse piece;
  piece.set_offset_bytes(offset_bytes_);
  piece.set_crc32c(Crc32c(data));
  offset_bytes_ += static_cast<int64_t>(data.size());
  piece.set_data(std::move(data));
  return piece;
}

bool CheckpointSource::IsLast(const v1::ReadCheckpointResponse& piece) const {
  return piece.offset_bytes() + static_cast<int64_t>(piece.data().size()) == end_bytes_;
}

v1::ReadCheckpointResponse CheckpointSource::Heartbeat() const {
  v1::ReadCheckpointResponse piece;
  piece.set_offset_bytes(offset_bytes_);
  return piece;
}

std::string CheckpointSource::Cursor() const { return absl::StrCat(offset_bytes_); }

}  // namespace megatrain
