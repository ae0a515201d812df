#ifndef RUNTIME_MODEL_IO_LOAD_MODEL_H_
#define RUNTIME_MODEL_IO_LOAD_MODEL_H_

#include "absl/status/status.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model_io/model_folder.h"

namespace megatrain {

// Fills the master weights from the folder's files and zeroes the moments, whatever the store held
// before. Tensor by tensor through one fixed buffer: no second copy of anything. `layout` is
// MakeModelLayout(folder.config()) and the store's. Errors as MatchTensors, and INVALID_ARGUMENT
// naming a tensor with a value that is not finite; the store's contents are undefined then.
absl::Status LoadModel(const ModelFolder& folder, const ModelLayout& layout, HostStore& store);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_LOAD_MODEL_H_
