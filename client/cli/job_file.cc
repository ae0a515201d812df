#include "client/cli/job_file.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/text_file.h"
#include "client/cli/yaml_message.h"
#include "client/lib/error_text.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kJobFileLimitBytes = int64_t{1} << 20;

// Keys of the job file's format that no server serves yet. A key that the API has is none of them.
std::set<std::string> LaterKeys() { return {"train.batch_tokens"}; }

YamlKeys RootKeys(v1::CreateJobRequest& request) {
  YamlKeys keys = KeysOf(*request.mutable_spec());
  const YamlKeys of_request = KeysOf(request);
  for (const char* key : {"display_name", "labels"}) {
    keys[key] = of_request.at(key);
  }
  return keys;
}

absl::Status ApplySetting(const std::string& setting, v1::CreateJobRequest& request) {
  const std::string source = absl::StrCat("--set ", setting);
  const YamlReader reader(source, /*has_lines=*/false, LaterKeys());
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    return reader.Error(YAML::Mark::null_mark(), "wants key=value, such as train.steps=10");
  }
  MT_ASSIGN_OR_RETURN(YAML::Node node, reader.Parse(setting.substr(equals + 1)));
  const std::vector<std::string> path = absl::StrSplit(setting.substr(0, equals), '.');
  for (auto key = path.rbegin(); key != path.rend(); ++key) {
    YAML::Node outer;
    outer[*key] = node;
    node = outer;
  }
  return reader.Fill(node, RootKeys(request), "");
}

// models/x@2 -> models/x/versions/2.
void SpellOutVersion(v1::TrainingSpec& spec) {
  const std::vector<std::string> parts = absl::StrSplit(spec.model(), absl::MaxSplits('@', 1));
  if (parts.size() == 2) {
    spec.set_model(absl::StrCat(parts[0], "/versions/", parts[1]));
  }
}

// The request with file and settings laid over it.
absl::Status Apply(const JobChanges& changes, v1::CreateJobRequest& request) {
  if (!changes.path.empty()) {
    MT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(changes.path, kJobFileLimitBytes));
    const YamlReader reader(changes.path, /*has_lines=*/true, LaterKeys());
    MT_ASSIGN_OR_RETURN(const YAML::Node root, reader.Parse(text));
    MT_RETURN_IF_ERROR(reader.Fill(root, RootKeys(request), ""));
  }
  for (const std::string& setting : changes.settings) {
    MT_RETURN_IF_ERROR(ApplySetting(setting, request));
  }
  SpellOutVersion(*request.mutable_spec());
  return absl::OkStatus();
}

// Of two keys that exclude each other, the one that `changes` does not have leaves `base`.
void MakeWay(const v1::TrainingSpec& changes, v1::TrainingSpec& base) {
  if (changes.train().steps() != 0) {
    base.mutable_train()->clear_epochs();
  }
  if (changes.train().epochs() != 0) {
    base.mutable_train()->clear_steps();
  }
  if (changes.evaluation().split() != 0) {
    base.mutable_evaluation()->clear_dataset();
  }
  if (!changes.evaluation().dataset().empty()) {
    base.mutable_evaluation()->clear_split();
  }
}

}  // namespace

absl::StatusOr<v1::CreateJobRequest> ReadJobFile(const std::string& path,
                                                 const std::vector<std::string>& settings) {
  v1::CreateJobRequest request;
  MT_RETURN_IF_ERROR(Apply({path, settings}, request));
  return request;
}

absl::StatusOr<v1::CreateJobRequest> ReadJobSettings(const std::vector<std::string>& settings) {
  return ReadJobFile("", settings);
}

absl::StatusOr<v1::CreateJobRequest> ReadJobChanges(v1::CreateJobRequest base,
                                                    const JobChanges& changes) {
  MT_ASSIGN_OR_RETURN(const v1::CreateJobRequest alone,
                      ReadJobFile(changes.path, changes.settings));
  MakeWay(alone.spec(), *base.mutable_spec());
  MT_RETURN_IF_ERROR(Apply(changes, base));
  return base;
}

}  // namespace megatrain
