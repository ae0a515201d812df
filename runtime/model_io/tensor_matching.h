#ifndef RUNTIME_MODEL_IO_TENSOR_MATCHING_H_
#define RUNTIME_MODEL_IO_TENSOR_MATCHING_H_

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/config/model_layout.h"
#include "runtime/model_io/model_folder.h"
#include "runtime/safetensors/safetensors_file.h"

namespace megatrain {

// What one tensor of a file is to the model.
struct MatchedTensor {
  const TensorEntry* entry;
  int unit;                    // -1: no parameter, only carried along
  const TensorLayout* tensor;  // nullptr for that
  bool repeats_token_table;    // the output matrix of a tied model, which the file holds too
};

// The tensors of one file, by offset.
struct MatchedShard {
  const SafetensorsFile* file;
  std::vector<MatchedTensor> tensors;
};

// Finds every tensor of `layout` in the folder and the other way round; points into both. Errors
// name the tensors that are missing, unexpected, twice there or of another shape or dtype than
// F32, BF16 or F16. A tied model may hold an output matrix too, when it equals the token table
// (both are read to know); FAILED_PRECONDITION with the choice there is when it does not, or when
// an untied one holds none.
absl::StatusOr<std::vector<MatchedShard>> MatchTensors(const ModelFolder& folder,
                                                       const ModelLayout& layout);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_TENSOR_MATCHING_H_
