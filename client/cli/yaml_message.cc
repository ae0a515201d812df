#include "client/cli/yaml_message.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/lib/error_text.h"
#include "nlohmann/json.hpp"
#include "runtime/base/nearest_name.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

constexpr char kBytesSuffix[] = "_bytes";

bool IsSize(const FieldDescriptor& field) {
  return absl::EndsWith(field.name(), kBytesSuffix) &&
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
}

// What a field wants, for people.
std::string WantedType(const FieldDescriptor& field) {
  if (field.is_map() || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return "a mapping";
  }
  if (IsSize(field)) {
    return "a size, such as 64GiB";
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    default:
      return "a text";
  }
}

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

// Sets a plain field from text; false when the text is not of its type.
bool SetFromText(const std::string& text, Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, text);
      return true;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(&message, &field, text == "true");
      return text == "true" || text == "false";
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      const bool good = absl::SimpleAtod(text, &value) && std::isfinite(value);
      reflection.SetDouble(&message, &field, good ? value : 0);
      return good;
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = 0;
      const absl::StatusOr<int64_t> size = IsSize(field) ? ParseSize(text) : 0;
      const bool good = IsSize(field) ? size.ok() : absl::SimpleAtoi(text, &value);
      reflection.SetInt64(&message, &field, IsSize(field) && good ? *size : value);
      return good;
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      const bool good = absl::SimpleAtoi(text, &value);
      reflection.SetInt32(&message, &field, value);
      return good;
    }
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<int64_t> ParseSize(std::string_view text) {
  static const auto* const units = new std::map<std::string, double, std::less<>>{
      {"", 1},     {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  const size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const size_t unit_start = std::min(text.find_first_not_of(' ', number_end), text.size());
  double number = 0;
  const auto unit = units->find(text.substr(unit_start));
  if (!absl::SimpleAtod(std::string(text.substr(0, number_end)), &number) || unit == units->end() ||
      number * unit->second >= 0x1p63) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(text), "\" is no size: write 64GiB, 1.5TB or bytes"));
  }
  return static_cast<int64_t>(number * unit->second);
}

YamlKeys KeysOf(Message& message) {
  YamlKeys keys;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    std::string key = field->name();
    if (IsSize(*field)) {
      key.resize(key.size() - (sizeof(kBytesSuffix) - 1));
    }
    keys[std::move(key)] = {&message, field};
  }
  return keys;
}

YamlReader::YamlReader(std::string source, bool has_lines, std::set<std::string> later_keys)
    : source_(std::move(source)), has_lines_(has_lines), later_keys_(std::move(later_keys)) {}

absl::Status YamlReader::Error(const YAML::Mark& mark, std::string_view message) const {
  const std::string place =
      has_lines_ && mark.line >= 0 ? absl::StrCat(source_, ":", mark.line + 1) : source_;
  return WithClientReason(
      absl::InvalidArgumentError(absl::StrCat(place, ": ", std::string(message))),
      "INVALID_JOB_FILE");
}

absl::Status YamlReader::CheckUtf8(const std::string& text) const {
  YAML::Mark mark;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    try {
      nlohmann::json(std::string(line)).dump();
    } catch (const nlohmann::json::exception&) {
      return Error(mark, "is not UTF-8 text: save it as UTF-8");
    }
    ++mark.line;
  }
  return absl::OkStatus();
}

absl::StatusOr<YAML::Node> YamlReader::Parse(const std::string& text) const {
  MT_RETURN_IF_ERROR(CheckUtf8(text));
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() != 1) {
      return Error(YAML::Mark::null_mark(),
                   absl::StrCat("wants one document, has ", documents.size()));
    }
    return documents[0];
  } catch (const YAML::Exception& error) {
    return Error(error.mark, error.msg);
  }
}

absl::Status YamlReader::UnknownKey(const YAML::Mark& mark, const std::string& key,
                                    const YamlKeys& keys, const std::string& path) const {
  if (later_keys_.count(Join(path, key)) > 0) {
    return Error(mark, absl::StrCat(Join(path, key), " is not supported yet: take it out"));
  }
  std::vector<std::string> known;
  for (const auto& [name, field] : keys) {
    known.push_back(name);
  }
  const std::string nearest = NearestName(key, known);
  absl::Status error = Error(mark, absl::StrCat("unknown key ", Join(path, key)));
  if (!nearest.empty()) {
    return WithHint(std::move(error), absl::StrCat(Join(path, nearest), ", the nearest known key"));
  }
  std::string list;
  for (const std::string& name : known) {
    absl::StrAppend(&list, list.empty() ? "" : ", ", name);
  }
  return WithHint(std::move(error), absl::StrCat("one of ", list));
}

absl::Status YamlReader::Fill(const YAML::Node& node, const YamlKeys& keys,
                              const std::string& path) const {
  const std::string name = path.empty() ? "the file" : path;
  if (!node.IsMap()) {
    return Error(node.Mark(), absl::StrCat(name, " wants a mapping of keys and values"));
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      return Error(entry.first.Mark(), absl::StrCat(name, " has a key that is no text"));
    }
    const std::string& key = entry.first.Scalar();
    const auto target = keys.find(key);
    if (target == keys.end()) {
      return UnknownKey(entry.first.Mark(), key, keys, path);
    }
    if (!seen.insert(key).second) {
      return Error(entry.first.Mark(), absl::StrCat(Join(path, key), " stands here twice"));
    }
    MT_RETURN_IF_ERROR(FillField({entry.first, entry.second}, target->second, Join(path, key)));
  }
  return absl::OkStatus();
}

absl::Status YamlReader::FillField(const YamlEntry& entry, const YamlField& target,
                                   const std::string& path) const {
  const auto& [key, node] = entry;
  const FieldDescriptor& field = *target.field;
  if (field.is_map()) {
    return FillMap(node, target, path);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Message* inner = target.message->GetReflection()->MutableMessage(target.message, &field);
    return Fill(node, KeysOf(*inner), path);
  }
  return FillScalar(entry, target, path);
}

absl::Status YamlReader::FillScalar(const YamlEntry& entry, const YamlField& target,
                                    const std::string& path) const {
  const auto& [key, node] = entry;
  const FieldDescriptor& field = *target.field;
  // A quoted text is a text, whatever stands in the quotes.
  const bool is_quoted = node.Tag() == "!";
  const bool fits =
      node.IsScalar() &&
      (!is_quoted || IsSize(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) &&
      SetFromText(node.Scalar(), *target.message, field);
  if (fits) {
    return absl::OkStatus();
  }
  const std::string found =
      node.IsScalar()     ? absl::StrCat(is_quoted ? "the text " : "", "\"", node.Scalar(), "\"")
      : node.IsSequence() ? "a list"
      : node.IsMap()      ? "a mapping"
                          : "nothing";
  return Error(key.Mark(), absl::StrCat(path, " wants ", WantedType(field), ", not ", found));
}

absl::Status YamlReader::FillMap(const YAML::Node& node, const YamlField& target,
                                 const std::string& path) const {
  if (!node.IsMap()) {
    return Error(node.Mark(), absl::StrCat(path, " wants a mapping of texts to texts"));
  }
  for (const auto& entry : node) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      return Error(entry.first.Mark(), absl::StrCat(path, " wants a mapping of texts to texts"));
    }
    Message* pair = target.message->GetReflection()->AddMessage(target.message, target.field);
    const auto* descriptor = pair->GetDescriptor();
    pair->GetReflection()->SetString(pair, descriptor->field(0), entry.first.Scalar());
    pair->GetReflection()->SetString(pair, descriptor->field(1), entry.second.Scalar());
  }
  return absl::OkStatus();
}

}  // namespace megatrain
