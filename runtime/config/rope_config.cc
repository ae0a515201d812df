#include "runtime/config/rope_config.h"

#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using nlohmann::json;

constexpr char kFile[] = "config.json: ";

struct Kind {
  RopeKind kind;
  std::set<std::string> keys;  // beside the common ones
};

// Spellings of transformers; "su" is longrope's first name.
const std::map<std::string, Kind>& Kinds() {
  static const auto& kinds = *new std::map<std::string, Kind>{
      {"default", {RopeKind::kDefault, {}}},
      {"linear", {RopeKind::kLinear, {"factor"}}},
      {"llama3",
       {RopeKind::kLlama3,
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}},
      {"yarn", {RopeKind::kOther, {}}},
      {"longrope", {RopeKind::kOther, {}}},
      {"su", {RopeKind::kOther, {}}},
      {"dynamic", {RopeKind::kOther, {}}},
      {"proportional", {RopeKind::kOther, {}}},
  };
  return kinds;
}

// Where the settings lie: an object of `config` and its name, or nothing for plain RoPE.
struct Source {
  const json* object = nullptr;
  std::string name;
};

absl::StatusOr<Source> FindSource(const json& config) {
  JsonFields fields(config, kFile);
  const bool has_v4 = fields.Has("rope_scaling");
  if (has_v4 && fields.Has("rope_parameters")) {
    return absl::InvalidArgumentError(
        "config.json: has both rope_scaling and rope_parameters; keep the one that holds");
  }
  Source source;
  source.name = has_v4 ? "rope_scaling" : "rope_parameters";
  if (fields.Has(source.name.c_str())) {
    source.object = &fields.Any(source.name.c_str());
  }
  if (source.object != nullptr && !source.object->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", source.name, " is not an object"));
  }
  if (source.object != nullptr &&
      (source.object->contains("full_attention") || source.object->contains("sliding_attention"))) {
    auto full = source.object->find("full_attention");
    if (full == source.object->end() || !full->is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("config.json: ", source.name, ".full_attention is no object"));
    }
    source = {&*full, source.name + ".full_attention"};
  }
  return source;
}

// theta stands at the top in version 4's form and inside rope_parameters in 5's.
absl::StatusOr<double> ReadTheta(const json& config, const Source& source, double family_theta) {
  JsonFields top(config, kFile);
  double theta = top.PositiveOr("rope_theta", family_theta);
  MT_RETURN_IF_ERROR(top.status());
  if (source.object == nullptr) {
    return theta;
  }
  JsonFields inner(*source.object, absl::StrCat(kFile, source.name, "."));
  double inner_theta = inner.PositiveOr("rope_theta", theta);
  MT_RETURN_IF_ERROR(inner.status());
  if (top.Has("rope_theta") && inner_theta != theta) {
    return absl::InvalidArgumentError(absl::StrCat("config.json: rope_theta is ", theta, " but ",
                                                   source.name, ".rope_theta is ", inner_theta));
  }
  return inner_theta;
}

void NoteUnusedKeys(const Source& source, const Kind& kind, std::vector<std::string>* unsupported) {
  static const auto& common =
      *new std::set<std::string>{"type", "rope_type", "rope_theta", "partial_rotary_factor"};
  for (const auto& [key, value] : source.object->items()) {
    bool used = common.contains(key) || kind.keys.contains(key);
    if (kind.kind != RopeKind::kOther && !used && !value.is_null()) {
      unsupported->push_back(absl::StrCat(source.name, ".", key));
    }
  }
}

void ReadFactors(JsonFields& fields, RopeConfig* rope) {
  constexpr int64_t kMaxPositions = int64_t{1} << 31;
  rope->factor = fields.Positive("factor");
  if (rope->kind != RopeKind::kLlama3) {
    return;
  }
  rope->low_frequency_factor = fields.Positive("low_freq_factor");
  rope->high_frequency_factor = fields.Positive("high_freq_factor");
  rope->original_max_positions =
      fields.Number("original_max_position_embeddings", 1, kMaxPositions);
  if (rope->high_frequency_factor <= rope->low_frequency_factor) {
    fields.Refuse("high_freq_factor", "is not greater than low_freq_factor");
  }
}

}  // namespace

absl::StatusOr<RopeConfig> ParseRope(const json& config, double family_theta,
                                     std::vector<std::string>* unsupported) {
  RopeConfig rope;
  MT_ASSIGN_OR_RETURN(Source source, FindSource(config));
  MT_ASSIGN_OR_RETURN(rope.theta, ReadTheta(config, source, family_theta));
  if (source.object == nullptr) {
    return rope;
  }
  JsonFields fields(*source.object, absl::StrCat(kFile, source.name, "."));
  const std::string old_spelling = fields.TextOr("type", "default");
  rope.name = fields.TextOr("rope_type", old_spelling);
  MT_RETURN_IF_ERROR(fields.status());
  auto found = Kinds().find(rope.name);
  if (found == Kinds().end()) {
    return absl::UnimplementedError(
        absl::StrCat("config.json: unknown RoPE type \"", rope.name, "\" in ", source.name));
  }
  rope.kind = found->second.kind;
  if (rope.kind == RopeKind::kLinear || rope.kind == RopeKind::kLlama3) {
    ReadFactors(fields, &rope);
  }
  if (fields.PositiveOr("partial_rotary_factor", 1.0) != 1.0) {
    unsupported->push_back(source.name + ".partial_rotary_factor");
  }
  NoteUnusedKeys(source, found->second, unsupported);
  MT_RETURN_IF_ERROR(fields.status());
  return rope;
}

}  // namespace megatrain
