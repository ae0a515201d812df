#include "runtime/model_io/tensor_matching.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/safetensors/tensor_dtype.h"

namespace megatrain {
namespace {

constexpr char kHeadName[] = "lm_head.weight";
constexpr int64_t kCompareBytes = int64_t{1} << 20;

// Older files store RoPE's frequencies, which follow from the config; transformers skips them too.
bool IsDerived(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

bool IsReadable(TensorDtype dtype) {
  return dtype == TensorDtype::kF32 || dtype == TensorDtype::kBf16 || dtype == TensorDtype::kF16;
}

// Where a name lies: the layout's side and, once found, the file's.
struct Place {
  int unit = 0;
  const TensorLayout* tensor = nullptr;
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};
using Places = std::map<std::string, Place>;

Places PlacesOf(const ModelLayout& layout) {
  Places places;
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      places[tensor.name] = {.unit = static_cast<int>(unit), .tensor = &tensor};
    }
  }
  if (layout.tied) {
    places[kHeadName] = {.unit = 0, .tensor = layout.units[0].Find(TensorRole::kTokenTable)};
  }
  return places;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The first few of many names.
std::string NamesText(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(kShown, names.size()));
  std::string text = absl::StrJoin(shown, ", ");
  return names.size() > kShown ? absl::StrCat(text, " and ", names.size() - kShown, " more") : text;
}

absl::Status CheckTensor(const SafetensorsFile& file, const TensorEntry& entry,
                         const TensorLayout& tensor) {
  if (entry.shape != tensor.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": tensor \"", entry.name, "\" has the shape ", ShapeText(entry.shape),
        ", but config.json asks for ", ShapeText(tensor.shape)));
  }
  if (!IsReadable(entry.dtype)) {
    return absl::UnimplementedError(absl::StrCat(file.path(), ": tensor \"", entry.name,
                                                 "\" has the dtype ", TensorDtypeName(entry.dtype),
                                                 "; F32, BF16 and F16 are read"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SameBytes(const Place& a, const Place& b) {
  if (a.entry->dtype != b.entry->dtype) {
    return false;
  }
  std::vector<char> first(kCompareBytes);
  std::vector<char> second(kCompareBytes);
  for (int64_t offset = 0; offset < a.entry->size_bytes; offset += kCompareBytes) {
    const size_t count = std::min(kCompareBytes, a.entry->size_bytes - offset);
    MT_RETURN_IF_ERROR(a.file->Read(*a.entry, offset, std::span(first).first(count)));
    MT_RETURN_IF_ERROR(b.file->Read(*b.entry, offset, std::span(second).first(count)));
    if (std::memcmp(first.data(), second.data(), count) != 0) {
      return false;
    }
  }
  return true;
}

absl::Status CheckTie(const ModelFolder& folder, const ModelLayout& layout, const Places& places) {
  const Place& head = places.at(kHeadName);
  if (!layout.tied && head.entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder.path(), ": config.json says tie_word_embeddings = false, but there is no ",
        kHeadName, "; set it to true if the output matrix is the token table"));
  }
  if (!layout.tied || head.entry == nullptr) {
    return absl::OkStatus();
  }
  const Place& table = places.at(layout.units[0].Find(TensorRole::kTokenTable)->name);
  if (table.entry == nullptr) {
    return absl::OkStatus();  // reported as missing
  }
  MT_ASSIGN_OR_RETURN(const bool same, SameBytes(table, head));
  if (same) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      folder.path(), ": config.json says tie_word_embeddings = true, but the files hold ",
      table.entry->name, " and another ", kHeadName, "; set it to false to train both, or remove ",
      kHeadName, " to train the tied one"));
}

}  // namespace

absl::StatusOr<std::vector<MatchedShard>> MatchTensors(const ModelFolder& folder,
                                                       const ModelLayout& layout) {
  Places places = PlacesOf(layout);
  std::vector<MatchedShard> shards;
  std::vector<std::string> unexpected;
  for (const auto& file : folder.shards()) {
    MatchedShard shard = {.file = file.get(), .tensors = {}};
    for (const TensorEntry& entry : file->header().tensors) {
      auto place = places.find(entry.name);
      if (place == places.end()) {
        if (!IsDerived(entry.name)) {
          unexpected.push_back(entry.name);
        }
        shard.tensors.push_back({&entry, -1, nullptr, false});
        continue;
      }
      MT_RETURN_IF_ERROR(CheckTensor(*file, entry, *place->second.tensor));
      place->second.file = file.get();
      place->second.entry = &entry;
      shard.tensors.push_back({&entry, place->second.unit, place->second.tensor,
                               layout.tied && entry.name == kHeadName});
    }
    shards.push_back(std::move(shard));
  }
  MT_RETURN_IF_ERROR(CheckTie(folder, layout, places));
  std::vector<std::string> missing;
  for (const auto& [name, place] : places) {
    if (place.entry == nullptr && !(layout.tied && name == kHeadName)) {
      missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.path(), ": tensors are missing: ", NamesText(missing)));
  }
  if (!unexpected.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.path(), ": tensors that config.json does not ask for: ", NamesText(unexpected)));
  }
  return shards;
}

}  // namespace megatrain
