#ifndef RUNTIME_BASE_JSON_FIELDS_H_
#define RUNTIME_BASE_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace megatrain {

// Reads fields of one JSON object and keeps the first complaint, so that a reader of many checks
// once, at its end. A field whose value is null counts as absent.
class JsonFields {
 public:
  // `where` stands before each name in complaints, such as "config.json: " or "files.". Refers to
  // `object`, which may be anything: what is no object has no fields.
  JsonFields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // Of a field that must be there. What they give for one that is absent or wrong is within the
  // bounds that were asked for, or empty, or zero.
  int64_t Number(const char* name, int64_t min, int64_t max);
  double Real(const char* name);  // finite
  double Positive(const char* name);
  bool Flag(const char* name);
  std::string Text(const char* name);
  std::string HexDigest(const char* name, size_t digits);  // of exactly so many lower-case digits

  // The same of a field that has the value `absent` when it is not there.
  int64_t NumberOr(const char* name, int64_t absent, int64_t min, int64_t max);
  double PositiveOr(const char* name, double absent);
  bool FlagOr(const char* name, bool absent);
  std::string TextOr(const char* name, const std::string& absent);

  // `null` when it is absent.
  const nlohmann::json& Any(const char* name) const;
  bool Has(const char* name) const { return !Any(name).is_null(); }

  // Fields of the object of that name. Ask for its status too.
  JsonFields Object(const char* name);

  // A complaint of the caller's: about a field, or in full. Kept is the first that is not empty.
  void Refuse(const char* name, const std::string& why);
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
