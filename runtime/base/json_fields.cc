#include "runtime/base/json_fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace megatrain {

bool IsHex(const std::string& text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

const nlohmann::json& JsonObjectFields::Any(const char* name) const {
  static const nlohmann::json& absent = *new nlohmann::json();
  const auto found = object_.find(name);
  return found == object_.end() ? absent : *found;
}

int64_t JsonObjectFields::Number(const char* name, int64_t min, int64_t max) {
  const nlohmann::json& value = Any(name);
  const bool in_range = value.is_number_integer() &&
                        !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) &&
                        value.get<int64_t>() >= min && value.get<int64_t>() <= max;
  if (!in_range) {
    Refuse(absl::StrCat(where_, name, " is no integer from ", min, " to ", max));
    return min;
  }
  return value.get<int64_t>();
}

double JsonObjectFields::Real(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_number()) {
    Refuse(absl::StrCat(where_, name, " is no number"));
    return 0;
  }
  return value.get<double>();
}

bool JsonObjectFields::Flag(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_boolean()) {
    Refuse(absl::StrCat(where_, name, " is neither true nor false"));
    return false;
  }
  return value.get<bool>();
}

std::string JsonObjectFields::Text(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_string()) {
    Refuse(absl::StrCat(where_, name, " is no text"));
    return "";
  }
  return value.get<std::string>();
}

std::string JsonObjectFields::HexDigest(const char* name, size_t digits) {
  const nlohmann::json& value = Any(name);
  std::string text = value.is_string() ? value.get<std::string>() : "";
  if (!IsHex(text, digits)) {
    Refuse(absl::StrCat(where_, name, " is no text of ", digits, " lower-case hex digits"));
  }
  return text;
}

JsonObjectFields JsonObjectFields::Object(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_object()) {
    Refuse(absl::StrCat(where_, name, " is absent"));
  }
  return JsonObjectFields(value, absl::StrCat(where_, name, "."));
}

void JsonObjectFields::Refuse(const std::string& complaint) {
  if (complaint_.empty()) {
    complaint_ = complaint;
  }
}

absl::Status JsonObjectFields::status() const {
  return complaint_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(complaint_);
}

}  // namespace megatrain
