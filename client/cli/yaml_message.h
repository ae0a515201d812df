// YAML into a protobuf message: a field's name is a key, so a new field is a new key.

#ifndef CLIENT_CLI_YAML_MESSAGE_H_
#define CLIENT_CLI_YAML_MESSAGE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "yaml-cpp/yaml.h"

namespace megatrain {

// Bytes of "64GiB", "1.5 TB", "512": binary and decimal units by their names. INVALID_ARGUMENT for
// anything else.
absl::StatusOr<int64_t> ParseSize(std::string_view text);

// One place that a key of a mapping goes to.
struct YamlField {
  google::protobuf::Message* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// One key of a mapping in a text, and what stands after it.
struct YamlEntry {
  YAML::Node key;
  YAML::Node value;
};

// The keys of a mapping.
using YamlKeys = std::map<std::string, YamlField>;

// The keys of all fields of `message`. A field `x_bytes` has the key `x` and takes a size.
YamlKeys KeysOf(google::protobuf::Message& message);

// Reads mappings into messages.
class YamlReader {
 public:
  // `source` names the text in errors: a file, whose lines are counted, or an argument. A key of
  // `later_keys` (whole paths, such as "train.batch_tokens") is one that no server serves yet.
  YamlReader(std::string source, bool has_lines, std::set<std::string> later_keys);

  // The one document of `text`.
  absl::StatusOr<YAML::Node> Parse(const std::string& text) const;

  // Sets what `node` names and keeps the rest. `path` is the path of the mapping, empty at the
  // root. INVALID_ARGUMENT names line, key and the nearest known one, or the type that it wants.
  absl::Status Fill(const YAML::Node& node, const YamlKeys& keys, const std::string& path) const;

  // An error at a place of the text.
  absl::Status Error(const YAML::Mark& mark, std::string_view message) const;

 private:
  absl::Status FillField(const YamlEntry& entry, const YamlField& target,
                         const std::string& path) const;
  absl::Status FillMap(const YAML::Node& node, const YamlField& target,
                       const std::string& path) const;
  absl::Status FillScalar(const YamlEntry& entry, const YamlField& target,
                          const std::string& path) const;
  // Other text would be a string that no request can carry.
  absl::Status CheckUtf8(const std::string& text) const;
  absl::Status UnknownKey(const YAML::Mark& mark, const std::string& key, const YamlKeys& keys,
                          const std::string& path) const;

  const std::string source_;
  const bool has_lines_;
  const std::set<std::string> later_keys_;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_YAML_MESSAGE_H_
