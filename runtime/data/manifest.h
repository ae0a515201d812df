#ifndef RUNTIME_DATA_MANIFEST_H_
#define RUNTIME_DATA_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

// What a manifest says of one file.
struct ManifestFile {
  int64_t size_bytes = 0;
  std::string sha256;  // 64 lower-case hex digits
};

// A prepared data folder's manifest.json (prepared_data.h).
struct Manifest {
  int64_t row_count = 0;
  int64_t token_count = 0;
  int64_t trained_token_count = 0;
  int64_t longest_row_tokens = 0;
  std::string fingerprint;
  ManifestFile tokens;
  ManifestFile trained;
  ManifestFile rows;
};

// INVALID_ARGUMENT names the key that is absent, of a wrong type, out of range or in contradiction
// to another; UNIMPLEMENTED a newer format.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace megatrain

#endif  // RUNTIME_DATA_MANIFEST_H_
