#include "runtime/base/bounded_json.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// Sees every token before a value exists; a false return stops the parser.
class Checker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Checker(int max_depth) : max_depth_(max_depth) {}

  const std::string& complaint() const { return complaint_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }

  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) {
      return true;
    }
    complaint_ = absl::StrCat("the key \"", name, "\" appears twice in one object");
    return false;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string text = error.what();
    std::size_t bracket = text.find("] ");
    complaint_ = bracket == std::string::npos ? text : text.substr(bracket + 2);
    return false;
  }

 private:
  bool Enter() {
    if (static_cast<int>(keys_.size()) == max_depth_) {
      complaint_ = absl::StrCat("nested deeper than ", max_depth_);
      return false;
    }
    keys_.emplace_back();
    return true;
  }

  bool Leave() {
    keys_.pop_back();
    return true;
  }

  const int max_depth_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open object or array
  std::string complaint_;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseBoundedJson(std::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "JSON of ", text.size(), " bytes: larger than the limit of ", limits.size_bytes, " bytes"));
  }
  Checker checker(limits.depth);
  if (!nlohmann::json::sax_parse(text, &checker)) {
    return absl::InvalidArgumentError(absl::StrCat("bad JSON: ", checker.complaint()));
  }
  return nlohmann::json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
}

}  // namespace megatrain
