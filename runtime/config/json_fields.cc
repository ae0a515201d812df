#include "runtime/config/json_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace megatrain {

JsonFields::JsonFields(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  MT_CHECK(object.is_object());
}

const nlohmann::json* JsonFields::Find(const char* key) const {
  auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t JsonFields::Count(const char* key, int64_t max) {
  if (!Has(key)) {
    Refuse(key, "is absent");
    return 0;
  }
  return CountOr(key, 0, max);
}

int64_t JsonFields::CountOr(const char* key, int64_t absent, int64_t max) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_number_integer()) {
    Refuse(key, "is not an integer");
    return absent;
  }
  bool wraps = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX};
  int64_t count = wraps ? 0 : value->get<int64_t>();
  if (count < 1 || count > max) {
    Refuse(key, absl::StrCat("is ", value->dump(), ", not between 1 and ", max));
    return absent;
  }
  return count;
}

double JsonFields::Positive(const char* key) {
  if (!Has(key)) {
    Refuse(key, "is absent");
    return 0;
  }
  return PositiveOr(key, 0);
}

double JsonFields::PositiveOr(const char* key, double absent) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_number()) {
    Refuse(key, "is not a number");
    return absent;
  }
  double number = value->get<double>();
  if (!std::isfinite(number) || number <= 0) {
    Refuse(key, absl::StrCat("is ", value->dump(), ", not a positive number"));
    return absent;
  }
  return number;
}

bool JsonFields::FlagOr(const char* key, bool absent) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_boolean()) {
    Refuse(key, "is neither true nor false");
    return absent;
  }
  return value->get<bool>();
}

std::string JsonFields::TextOr(const char* key, const std::string& absent) {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) {
    return absent;
  }
  if (!value->is_string()) {
    Refuse(key, "is not a string");
    return absent;
  }
  return value->get<std::string>();
}

void JsonFields::Refuse(const char* key, const std::string& why) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat("config.json: ", where_, key, " ", why));
  }
}

}  // namespace megatrain
