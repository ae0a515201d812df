#include "runtime/checkpoint/checkpoint_weights.h"

#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "runtime/model_io/element_conversion.h"

namespace megatrain {
namespace {

constexpr int kVerifyThreads = 2;

const StateFile& FileOf(HostStore::Plane plane) {
  for (const StateFile& file : kStateFiles) {
    if (file.plane == plane) {
      return file;
    }
  }
  return kStateFiles.front();
}

absl::Status ReadElements(const ReadableFile& file, int64_t offset_bytes, void* elements,
                          int64_t size_bytes) {
  return file.ReadAt(offset_bytes, {static_cast<char*>(elements), static_cast<size_t>(size_bytes)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointWeights>> CheckpointWeights::Open(
    const Checkpoint& checkpoint, const ModelLayout& layout, FileSystem& files,
    const ByteProgress& verifying) {
  const std::vector<int64_t> unit_elements = UnitElements(layout);
  if (checkpoint.manifest.unit_elements != unit_elements) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.path, ": is of a model of another shape"));
  }
  MT_RETURN_IF_ERROR(VerifyWeights(checkpoint, kVerifyThreads, files, verifying));
  std::unique_ptr<CheckpointWeights> weights(new CheckpointWeights());
  const StateFile& hi = FileOf(HostStore::Plane::kHi);
  const StateFile& lo = FileOf(HostStore::Plane::kLo);
  MT_ASSIGN_OR_RETURN(weights->hi_file_,
                      files.OpenForReading(absl::StrCat(checkpoint.path, "/", hi.name)));
  MT_ASSIGN_OR_RETURN(weights->lo_file_,
                      files.OpenForReading(absl::StrCat(checkpoint.path, "/", lo.name)));
  for (size_t unit = 0; unit < unit_elements.size(); ++unit) {
    weights->unit_bytes_.push_back(StateFileBytes(hi, std::span(unit_elements).first(unit)));
  }
  return weights;
}

absl::StatusOr<int64_t> CheckpointWeights::Encode(int unit, int64_t first_element,
                                                  TensorDtype dtype, std::span<char> bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size()) / SizeBytes(dtype);
  const int64_t element_bytes = sizeof(uint16_t);  // of both planes
  const int64_t offset_bytes = unit_bytes_[unit] + first_element * element_bytes;
  hi_.resize(count);
  lo_.resize(count);
  MT_RETURN_IF_ERROR(ReadElements(*hi_file_, offset_bytes, hi_.data(), count * element_bytes));
  MT_RETURN_IF_ERROR(ReadElements(*lo_file_, offset_bytes, lo_.data(), count * element_bytes));
  return EncodeElements(dtype, hi_.data(), lo_.data(), count, bytes.data());
}

}  // namespace megatrain
