#ifndef RUNTIME_CHECKPOINT_CHECKPOINT_WEIGHTS_H_
#define RUNTIME_CHECKPOINT_CHECKPOINT_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/config/model_layout.h"
#include "runtime/model_io/weight_source.h"

namespace megatrain {

// The weights of a checkpoint as an export reads them: piece by piece from its files, without a
// host store.
class CheckpointWeights final : public WeightSource {
 public:
  // Compares the checksums of the weights first, of which `verifying` hears, and which its error
  // ends: DATA_LOSS names what is damaged.
  // FAILED_PRECONDITION for a checkpoint of a model of another shape.
  static absl::StatusOr<std::unique_ptr<CheckpointWeights>> Open(
      const Checkpoint& checkpoint, const ModelLayout& layout, FileSystem& files,
      const ByteProgress& verifying = nullptr);

  absl::StatusOr<int64_t> Encode(int unit, int64_t first_element, TensorDtype dtype,
                                 std::span<char> bytes) override;

 private:
  CheckpointWeights() = default;

  std::unique_ptr<ReadableFile> hi_file_;
  std::unique_ptr<ReadableFile> lo_file_;
  std::vector<int64_t> unit_bytes_;  // where each unit starts, in both files
  std::vector<uint16_t> hi_;
  std::vector<int16_t> lo_;
};

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_CHECKPOINT_WEIGHTS_H_
