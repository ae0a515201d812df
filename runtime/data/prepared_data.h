// A folder of token shards, as dataset preparation writes it.
//
//   manifest.json  {"format": 1, "row_count": N, "token_count": T, "trained_token_count": K,
//                   "longest_row_tokens": M, "fingerprint": "64 hex digits",
//                   "files": {"tokens.bin": {"size_bytes": B, "sha256": "64 hex digits"}, ...}}
//   tokens.bin     int32, little-endian: the tokens of all rows, one row after another
//   trained.bin    one byte a token; 1: this token is predicted with a loss, which sits at the
//                  position before it, so a row's first token is never trained
//   rows.bin       int64, little-endian: N + 1 offsets in tokens, the first 0, the last T

#ifndef RUNTIME_DATA_PREPARED_DATA_H_
#define RUNTIME_DATA_PREPARED_DATA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/shard_file.h"

namespace megatrain {

// The manifest, and what the check of the files found.
struct PreparedDataInfo {
  int64_t row_count = 0;
  int64_t token_count = 0;
  int64_t trained_token_count = 0;
  int64_t longest_row_tokens = 0;
  int32_t largest_token = 0;  // for the check against a model's vocabulary
  std::string fingerprint;    // of the source, tokenizer, template and settings
};

// Reads rows from such a folder. Holds the row offsets in memory (8 bytes a row); tokens are read
// when they are asked for. Thread-safe.
class PreparedData {
 public:
  // Reads each file once and checks everything that the manifest and the format say: sizes,
  // SHA-256, ascending offsets, no negative token, at least one trained token in each row.
  // INVALID_ARGUMENT names the file and what is wrong with it; DATA_LOSS is a wrong checksum.
  static absl::StatusOr<std::unique_ptr<PreparedData>> Open(const std::string& folder);

  const PreparedDataInfo& info() const { return info_; }

  // `row` in [0, row_count).
  int64_t RowTokens(int64_t row) const { return row_offsets_[row + 1] - row_offsets_[row]; }

  // Replaces both with the row's tokens and its bytes of trained.bin.
  absl::Status ReadRow(int64_t row, std::vector<int32_t>& tokens,
                       std::vector<uint8_t>& trained) const;

 private:
  PreparedData(PreparedDataInfo info, ShardFile tokens, ShardFile trained);

  absl::Status LoadRowOffsets(const ShardFile& rows, const std::string& sha256);
  absl::Status CheckTokens(const std::string& sha256);
  absl::Status CheckTrained(const std::string& sha256) const;

  PreparedDataInfo info_;
  ShardFile tokens_;
  ShardFile trained_;
  std::vector<int64_t> row_offsets_;
};

}  // namespace megatrain

#endif  // RUNTIME_DATA_PREPARED_DATA_H_
