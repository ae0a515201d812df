#include "server/datasets/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// Changes when the helper would make other tokens of the same input.
constexpr int kFormat = 1;

// Vocabularies of a million tokens take tens of MiB as JSON.
constexpr int64_t kMaxFileBytes = int64_t{512} << 20;

}  // namespace

absl::StatusOr<std::string> FingerprintOf(const TokenSource& source, FileSystem& disk) {
  Sha256 hash;
  bool asks_for_time = false;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "special_tokens_map.json"}) {
    absl::StatusOr<std::string> text =
        disk.ReadFile(absl::StrCat(source.model_path, "/", name), kMaxFileBytes);
    if (absl::IsNotFound(text.status()) && std::string_view(name) != "tokenizer.json") {
      hash.Update(absl::StrCat(name, " absent\n"));
      continue;
    }
    MT_RETURN_IF_ERROR(text.status());
    hash.Update(absl::StrCat(name, " ", text->size(), "\n"));
    hash.Update(*text);
    asks_for_time |= text->find("strftime_now") != std::string::npos;
  }
  hash.Update(absl::StrCat("\nformat ", kFormat, "\ndata ", source.data_sha256, "\nskip ",
                           source.skip_bad_rows, source.skip_untrained_rows, "\nvocabulary ",
                           source.vocabulary_size, "\nlength ", source.max_sequence_length, "\n"));
  if (asks_for_time) {
    hash.Update(absl::StrCat("time ", absl::ToUnixSeconds(source.template_time), "\n"));
  }
  return hash.HexDigest();
}

}  // namespace megatrain
