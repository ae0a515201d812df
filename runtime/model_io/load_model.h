#ifndef RUNTIME_MODEL_IO_LOAD_MODEL_H_
#define RUNTIME_MODEL_IO_LOAD_MODEL_H_

#include "absl/status/status.h"
#include "runtime/base/byte_progress.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model_io/model_folder.h"

namespace megatrain {

// Fills the master weights from the folder's files and zeroes the moments, whatever the store held
// before. Tensor by tensor through one fixed buffer: no second copy of anything. `layout` is
// MakeModelLayout(folder.config()) and the store's. `progress` hears of the files' bytes. Errors as
// MatchTensors, INVALID_ARGUMENT naming a tensor with a value that is not finite, and what
// `progress` returns; the store's contents are undefined then.
absl::Status LoadModel(const ModelFolder& folder, const ModelLayout& layout, HostStore& store,
                       const ByteProgress& progress = {});

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_LOAD_MODEL_H_
