#include "runtime/base/json_fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// Why a value is not `wanted`, in words.
std::string Not(const nlohmann::json& value, const std::string& wanted) {
  return value.is_null() ? "is absent"
                         : absl::StrCat("is ", value.is_number() ? value.dump() : value.type_name(),
                                        ", ", wanted);
}

}  // namespace

bool IsHex(const std::string& text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

const nlohmann::json& JsonFields::Any(const char* name) const {
  static const nlohmann::json& absent = *new nlohmann::json();
  const auto found = object_.find(name);
  return found == object_.end() ? absent : *found;
}

int64_t JsonFields::Number(const char* name, int64_t min, int64_t max) {
  const nlohmann::json& value = Any(name);
  const bool in_range = value.is_number_integer() &&
                        !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) &&
                        value.get<int64_t>() >= min && value.get<int64_t>() <= max;
  if (!in_range) {
    Refuse(name, Not(value, absl::StrCat("no integer from ", min, " to ", max)));
    return min;
  }
  return value.get<int64_t>();
}

double JsonFields::Real(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_number()) {
    Refuse(name, Not(value, "no number"));
    return 0;
  }
  return value.get<double>();
}

double JsonFields::Positive(const char* name) {
  const nlohmann::json& value = Any(name);
  const double number = value.is_number() ? value.get<double>() : 0;
  if (!std::isfinite(number) || number <= 0) {
    Refuse(name, Not(value, "no positive number"));
    return 0;
  }
  return number;
}

bool JsonFields::Flag(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_boolean()) {
    Refuse(name, Not(value, "neither true nor false"));
    return false;
  }
  return value.get<bool>();
}

std::string JsonFields::Text(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_string()) {
    Refuse(name, Not(value, "no text"));
    return "";
  }
  return value.get<std::string>();
}

std::string JsonFields::HexDigest(const char* name, size_t digits) {
  const nlohmann::json& value = Any(name);
  std::string text = value.is_string() ? value.get<std::string>() : "";
  if (!IsHex(text, digits)) {
    Refuse(name, absl::StrCat("is no text of ", digits, " lower-case hex digits"));
  }
  return text;
}

int64_t JsonFields::NumberOr(const char* name, int64_t absent, int64_t min, int64_t max) {
  return Has(name) ? Number(name, min, max) : absent;
}

double JsonFields::PositiveOr(const char* name, double absent) {
  return Has(name) ? Positive(name) : absent;
}

bool JsonFields::FlagOr(const char* name, bool absent) { return Has(name) ? Flag(name) : absent; }

std::string JsonFields::TextOr(const char* name, const std::string& absent) {
  return Has(name) ? Text(name) : absent;
}

JsonFields JsonFields::Object(const char* name) {
  const nlohmann::json& value = Any(name);
  if (!value.is_object()) {
    Refuse(name, Not(value, "no object"));
  }
  return JsonFields(value, absl::StrCat(where_, name, "."));
}

void JsonFields::Refuse(const char* name, const std::string& why) {
  Refuse(absl::StrCat(where_, name, " ", why));
}

void JsonFields::Refuse(const std::string& complaint) {
  if (complaint_.empty()) {
    complaint_ = complaint;
  }
}

absl::Status JsonFields::status() const {
  return complaint_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(complaint_);
}

}  // namespace megatrain
