#ifndef RUNTIME_MODEL_IO_COPIED_FILES_H_
#define RUNTIME_MODEL_IO_COPIED_FILES_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// Copies what belongs to a model beside its weights from one Hugging Face folder to another:
// configs, tokenizer files, chat templates (also additional_chat_templates/), licences. Not copied:
// weights of any format and their indices, code, model cards, other folders. Durable file by file;
// the caller syncs `to`.
absl::Status CopyModelFiles(const std::string& from, const std::string& to, std::span<char> buffer,
                            FileSystem& file_system);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_COPIED_FILES_H_
