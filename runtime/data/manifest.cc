#include "runtime/data/manifest.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kFormat = 1;

// Keeps the products of counts and item sizes far from overflow.
constexpr int64_t kMaxTokens = int64_t{1} << 48;

// Reads keys of one object and keeps the first complaint.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  int64_t Number(const char* key, int64_t min, int64_t max) {
    const auto found = object_.find(key);
    const bool in_range = found != object_.end() && found->is_number_integer() &&
                          !(found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX) &&
                          found->get<int64_t>() >= min && found->get<int64_t>() <= max;
    if (!in_range) {
      Refuse(absl::StrCat(where_, key, " is no integer from ", min, " to ", max));
      return min;
    }
    return found->get<int64_t>();
  }

  std::string HexDigest(const char* key) {
    const auto found = object_.find(key);
    std::string text =
        found != object_.end() && found->is_string() ? found->get<std::string>() : "";
    const bool is_hex = std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
    if (text.size() != 64 || !is_hex) {
      Refuse(absl::StrCat(where_, key, " is no text of 64 lower-case hex digits"));
    }
    return text;
  }

  ManifestFile File(const char* name, int64_t expected_bytes) {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_object()) {
      Refuse(absl::StrCat(where_, name, " is absent"));
      return {};
    }
    Fields file(*found, absl::StrCat(where_, name, "."));
    ManifestFile result{file.Number("size_bytes", 0, INT64_MAX), file.HexDigest("sha256")};
    Refuse(file.complaint_);
    if (result.size_bytes != expected_bytes) {
      Refuse(absl::StrCat(where_, name, ".size_bytes is ", result.size_bytes,
                          " but the manifest's counts make it ", expected_bytes));
    }
    return result;
  }

  // Keeps the first that is not empty.
  void Refuse(const std::string& complaint) {
    if (complaint_.empty()) {
      complaint_ = complaint;
    }
  }

  absl::Status status() const {
    return complaint_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(complaint_);
  }

 private:
  const nlohmann::json& object_;
  const std::string where_;
  std::string complaint_;
};

}  // namespace

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  MT_ASSIGN_OR_RETURN(const nlohmann::json json, ParseBoundedJson(text, JsonLimits{}));
  if (!json.is_object()) {
    return absl::InvalidArgumentError("is no JSON object");
  }
  Fields fields(json, "");
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
  manifest.fingerprint = fields.HexDigest("fingerprint");
  const auto files = json.find("files");
  if (files == json.end() || !files->is_object()) {
    fields.Refuse("files is absent");
    return fields.status();
  }
  Fields entries(*files, "files.");
  manifest.tokens = entries.File("tokens.bin", manifest.token_count * 4);
  manifest.trained = entries.File("trained.bin", manifest.token_count);
  manifest.rows = entries.File("rows.bin", (manifest.row_count + 1) * 8);
  MT_RETURN_IF_ERROR(fields.status());
  MT_RETURN_IF_ERROR(entries.status());
  return manifest;
}

}  // namespace megatrain
