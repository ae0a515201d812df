#include "runtime/data/manifest.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kFormat = 1;

// Keeps the products of counts and item sizes far from overflow.
constexpr int64_t kMaxTokens = int64_t{1} << 48;

constexpr size_t kSha256Digits = 64;

ManifestFile ReadFileEntry(JsonFields& files, const char* name, int64_t expected_bytes) {
  JsonFields file = files.Object(name);
  ManifestFile result{file.Number("size_bytes", 0, INT64_MAX),
                      file.HexDigest("sha256", kSha256Digits)};
  files.Refuse(std::string(file.status().message()));
  if (result.size_bytes != expected_bytes) {
    files.Refuse(absl::StrCat(file.where(), "size_bytes is ", result.size_bytes,
                              " but the manifest's counts make it ", expected_bytes));
  }
  return result;
}

}  // namespace

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  MT_ASSIGN_OR_RETURN(const nlohmann::json json, ParseBoundedJson(text, JsonLimits{}));
  if (!json.is_object()) {
    return absl::InvalidArgumentError("is no JSON object");
  }
  JsonFields fields(json, "");
  const int64_t format = fields.Number("format", 1, INT64_MAX);
  if (format > kFormat) {
    return absl::UnimplementedError(absl::StrCat("format is ", format, " but this version reads ",
                                                 kFormat, ": prepare the data anew"));
  }
  Manifest manifest;
  manifest.row_count = fields.Number("row_count", 1, kMaxTokens);
  manifest.token_count = fields.Number("token_count", 2, kMaxTokens);
  manifest.trained_token_count = fields.Number("trained_token_count", 1, manifest.token_count);
  manifest.longest_row_tokens =
      fields.Number("longest_row_tokens", 2, std::min<int64_t>(manifest.token_count, INT32_MAX));
  manifest.fingerprint = fields.HexDigest("fingerprint", kSha256Digits);
  JsonFields entries = fields.Object("files");
  manifest.tokens = ReadFileEntry(entries, "tokens.bin", manifest.token_count * 4);
  manifest.trained = ReadFileEntry(entries, "trained.bin", manifest.token_count);
  manifest.rows = ReadFileEntry(entries, "rows.bin", (manifest.row_count + 1) * 8);
  MT_RETURN_IF_ERROR(fields.status());
  MT_RETURN_IF_ERROR(entries.status());
  return manifest;
}

}  // namespace megatrain
