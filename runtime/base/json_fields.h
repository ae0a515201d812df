#ifndef RUNTIME_BASE_JSON_FIELDS_H_
#define RUNTIME_BASE_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace megatrain {

// Reads fields of one JSON object that must be there, and keeps the first complaint; what it gives
// for a field that is absent or wrong is within the bounds that were asked for.
class JsonObjectFields {
 public:
  // `where` stands before each name in complaints, such as "files.". Refers to `object`, which may
  // be anything: what is no object has no fields.
  JsonObjectFields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  int64_t Number(const char* name, int64_t min, int64_t max);
  double Real(const char* name);  // finite
  bool Flag(const char* name);
  std::string Text(const char* name);
  std::string HexDigest(const char* name, size_t digits);  // of exactly so many lower-case digits

  // `null` when it is absent.
  const nlohmann::json& Any(const char* name) const;

  // Fields of the object of that name. Ask for its status too.
  JsonObjectFields Object(const char* name);

  // Keeps the first that is not empty.
  void Refuse(const std::string& complaint);

  const nlohmann::json& object() const { return object_; }
  const std::string& where() const { return where_; }

  // INVALID_ARGUMENT with the complaint.
  absl::Status status() const;

 private:
  const nlohmann::json& object_;
  const std::string where_;
  std::string complaint_;
};

// Whether `text` is `digits` lower-case hexadecimal digits.
bool IsHex(const std::string& text, size_t digits);

}  // namespace megatrain

#endif  // RUNTIME_BASE_JSON_FIELDS_H_
