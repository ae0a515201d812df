#include "runtime/data/prepared_data.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status_macros.h"
#include "runtime/data/manifest.h"

namespace megatrain {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

constexpr int64_t kManifestLimitBytes = 1 << 20;

void Update(std::span<const std::byte> bytes, Sha256& hash) {
  hash.Update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status Broken(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why, "; prepare the data anew"));
}

absl::Status CheckDigest(const std::string& path, Sha256& hash, const std::string& expected) {
  if (hash.HexDigest() != expected) {
    return absl::DataLossError(
        absl::StrCat(path, ": its SHA-256 is not the manifest's; prepare the data anew"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardFile> OpenOfSize(const std::string& path, int64_t size_bytes) {
  MT_ASSIGN_OR_RETURN(ShardFile file, ShardFile::Open(path));
  if (file.size_bytes() != size_bytes) {
    return Broken(
        path, absl::StrCat("has ", file.size_bytes(), " bytes but the manifest says ", size_bytes));
  }
  return file;
}

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  MT_ASSIGN_OR_RETURN(const ShardFile file, ShardFile::Open(folder + "/manifest.json"));
  if (file.size_bytes() > kManifestLimitBytes) {
    return Broken(file.path(), absl::StrCat("is larger than ", kManifestLimitBytes, " bytes"));
  }
  std::string text(file.size_bytes(), '\0');
  MT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  absl::StatusOr<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) {
    return absl::Status(manifest.status().code(),
                        absl::StrCat(file.path(), ": ", manifest.status().message()));
  }
  return manifest;
}

// The items of a piece of a file, which starts at a multiple of their size.
template <typename Item>
std::span<const Item> Items(std::span<const std::byte> piece) {
  return {reinterpret_cast<const Item*>(piece.data()), piece.size() / sizeof(Item)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreparedData>> PreparedData::Open(const std::string& folder) {
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(folder));
  MT_ASSIGN_OR_RETURN(const ShardFile rows,
                      OpenOfSize(folder + "/rows.bin", manifest.rows.size_bytes));
  MT_ASSIGN_OR_RETURN(ShardFile tokens,
                      OpenOfSize(folder + "/tokens.bin", manifest.tokens.size_bytes));
  MT_ASSIGN_OR_RETURN(ShardFile trained,
                      OpenOfSize(folder + "/trained.bin", manifest.trained.size_bytes));
  PreparedDataInfo info{.row_count = manifest.row_count,
                        .token_count = manifest.token_count,
                        .trained_token_count = manifest.trained_token_count,
                        .longest_row_tokens = manifest.longest_row_tokens,
                        .fingerprint = manifest.fingerprint};
  std::unique_ptr<PreparedData> data(
      new PreparedData(std::move(info), std::move(tokens), std::move(trained)));
  MT_RETURN_IF_ERROR(data->LoadRowOffsets(rows, manifest.rows.sha256));
  MT_RETURN_IF_ERROR(data->CheckTokens(manifest.tokens.sha256));
  MT_RETURN_IF_ERROR(data->CheckTrained(manifest.trained.sha256));
  return data;
}

PreparedData::PreparedData(PreparedDataInfo info, ShardFile tokens, ShardFile trained)
    : info_(std::move(info)), tokens_(std::move(tokens)), trained_(std::move(trained)) {}

absl::Status PreparedData::LoadRowOffsets(const ShardFile& rows, const std::string& sha256) {
  Sha256 hash;
  row_offsets_.reserve(info_.row_count + 1);
  MT_RETURN_IF_ERROR(rows.ForEachPiece([&](std::span<const std::byte> piece) {
    Update(piece, hash);
    const std::span<const int64_t> offsets = Items<int64_t>(piece);
    row_offsets_.insert(row_offsets_.end(), offsets.begin(), offsets.end());
    return absl::OkStatus();
  }));
  MT_RETURN_IF_ERROR(CheckDigest(rows.path(), hash, sha256));
  if (row_offsets_.front() != 0 || row_offsets_.back() != info_.token_count) {
    return Broken(rows.path(), absl::StrCat("its offsets do not go from 0 to the token count ",
                                            info_.token_count));
  }
  int64_t longest = 0;
  for (int64_t row = 0; row < info_.row_count; ++row) {
    // A row needs one token to predict from and one to predict. Compared without a subtraction,
    // which could overflow on wrong offsets.
    if (row_offsets_[row] < 0 || row_offsets_[row + 1] > info_.token_count ||
        row_offsets_[row + 1] < row_offsets_[row] + 2) {
      return Broken(rows.path(), absl::StrCat("row ", row, " has fewer than 2 tokens"));
    }
    longest = std::max(longest, RowTokens(row));
  }
  if (longest != info_.longest_row_tokens) {
    return Broken(rows.path(),
                  absl::StrCat("its longest row has ", longest, " tokens but the manifest says ",
                               info_.longest_row_tokens));
  }
  return absl::OkStatus();
}

absl::Status PreparedData::CheckTokens(const std::string& sha256) {
  Sha256 hash;
  int32_t smallest = 0;
  MT_RETURN_IF_ERROR(tokens_.ForEachPiece([&](std::span<const std::byte> piece) {
    Update(piece, hash);
    const auto [low, high] = std::ranges::minmax(Items<int32_t>(piece));
    smallest = std::min(smallest, low);
    info_.largest_token = std::max(info_.largest_token, high);
    return absl::OkStatus();
  }));
  MT_RETURN_IF_ERROR(CheckDigest(tokens_.path(), hash, sha256));
  if (smallest < 0) {
    return Broken(tokens_.path(), absl::StrCat("has the negative token ", smallest));
  }
  return absl::OkStatus();
}

absl::Status PreparedData::CheckTrained(const std::string& sha256) const {
  Sha256 hash;
  int64_t position = 0;
  int64_t row = -1;
  int64_t row_trained = 1;  // none is missing before the first row
  int64_t trained_count = 0;
  const absl::Status read = trained_.ForEachPiece([&](std::span<const std::byte> piece) {
    Update(piece, hash);
    for (const uint8_t flag : Items<uint8_t>(piece)) {
      const bool starts_row = position == row_offsets_[row + 1];
      if (starts_row && row_trained == 0) {
        return Broken(trained_.path(), absl::StrCat("row ", row, " has no trained token"));
      }
      if (starts_row) {
        ++row;
        row_trained = 0;
      }
      if (flag > 1 || (flag == 1 && position == row_offsets_[row])) {
        return Broken(trained_.path(), absl::StrCat("row ", row,
                                                    " has a mark other than 0 and 1, or trains "
                                                    "its first token"));
      }
      row_trained += flag;
      trained_count += flag;
      ++position;
    }
    return absl::OkStatus();
  });
  MT_RETURN_IF_ERROR(read);
  MT_RETURN_IF_ERROR(CheckDigest(trained_.path(), hash, sha256));
  if (row_trained == 0 || trained_count != info_.trained_token_count) {
    return Broken(trained_.path(),
                  absl::StrCat("marks ", trained_count, " tokens but the manifest says ",
                               info_.trained_token_count, ", or its last row marks none"));
  }
  return absl::OkStatus();
}

absl::Status PreparedData::ReadRow(int64_t row, std::vector<int32_t>& tokens,
                                   std::vector<uint8_t>& trained) const {
  MT_CHECK(row >= 0 && row < info_.row_count);
  tokens.resize(RowTokens(row));
  trained.resize(RowTokens(row));
  MT_RETURN_IF_ERROR(tokens_.ReadAt(row_offsets_[row] * static_cast<int64_t>(sizeof(int32_t)),
                                    std::as_writable_bytes(std::span(tokens))));
  return trained_.ReadAt(row_offsets_[row], std::as_writable_bytes(std::span(trained)));
}

}  // namespace megatrain
