#ifndef SERVER_DATASETS_FINGERPRINT_H_
#define SERVER_DATASETS_FINGERPRINT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// Everything that the tokens of a data set depend on.
struct TokenSource {
  std::string data_sha256;
  bool skip_bad_rows = false;
  bool skip_untrained_rows = false;
  std::string model_path;
  int64_t vocabulary_size = 0;
  int64_t max_sequence_length = 0;
  absl::Time template_time;  // counts only for a chat template that asks for the time
};

// SHA-256 in hex over the data's hash, the model's tokenizer and chat template and the settings.
// NOT_FOUND when the model has no tokenizer.json.
absl::StatusOr<std::string> FingerprintOf(const TokenSource& source, FileSystem& disk);

}  // namespace megatrain

#endif  // SERVER_DATASETS_FINGERPRINT_H_
