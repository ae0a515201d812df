#ifndef RUNTIME_MODEL_IO_EXPORT_MODEL_H_
#define RUNTIME_MODEL_IO_EXPORT_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model_io/model_folder.h"
#include "runtime/model_io/weight_source.h"

namespace megatrain {

// Writes weights as a Hugging Face folder in the source's form: the same files, tensor
// names, order, shapes and dtypes, an output matrix beside a tied table if and only if the source
// has one, and its config, tokenizer, templates and licences unchanged. Weights that were loaded
// and not updated since come out in the same bits.
//
// `output` must not exist (ALREADY_EXISTS); the folders above it are made. The folder is made
// durable under another name beside it and renamed at the end, so it is there complete or not at
// all; after an error nothing is left. `progress` hears of the weights' bytes. RESOURCE_EXHAUSTED
// with sizes when the disk has no room; FAILED_PRECONDITION naming a tensor with a value that is
// not finite in its dtype; what `progress` returns.
absl::Status ExportModel(const ModelFolder& source, const ModelLayout& layout,
                         WeightSource& weights, std::string output, FileSystem& file_system,
                         const ByteProgress& progress = {});

// The same of a host store's weights. No update may run meanwhile.
absl::Status ExportModel(const ModelFolder& source, const ModelLayout& layout, HostStore& store,
                         std::string output, FileSystem& file_system,
                         const ByteProgress& progress = {});

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_EXPORT_MODEL_H_
