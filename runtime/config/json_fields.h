#ifndef RUNTIME_CONFIG_JSON_FIELDS_H_
#define RUNTIME_CONFIG_JSON_FIELDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace megatrain {

// Reads the keys of one JSON object and keeps the first complaint, so that a reader of many keys
// checks once, at its end. A key whose value is null counts as absent. What is absent without a
// default, of a wrong type or out of range is INVALID_ARGUMENT that names the key; the value
// returned then is the default or zero. Refers to `object`.
class JsonFields {
 public:
  // `where` stands before each key in messages, such as "rope_scaling.".
  explicit JsonFields(const nlohmann::json& object, std::string where = "");

  const nlohmann::json* Find(const char* key) const;  // nullptr when absent
  bool Has(const char* key) const { return Find(key) != nullptr; }

  // Integers in [1, max].
  int64_t Count(const char* key, int64_t max);
  int64_t CountOr(const char* key, int64_t absent, int64_t max);

  // Finite and greater than zero.
  double Positive(const char* key);
  double PositiveOr(const char* key, double absent);

  bool FlagOr(const char* key, bool absent);
  std::string TextOr(const char* key, const std::string& absent);

  // For a complaint of the caller's about `key`.
  void Refuse(const char* key, const std::string& why);

  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json& object_;
  const std::string where_;
  absl::Status status_;
};

}  // namespace megatrain

#endif  // RUNTIME_CONFIG_JSON_FIELDS_H_
