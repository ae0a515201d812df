#include "client/cli/session.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/text.h"
#include "client/lib/error_text.h"
#include "google/protobuf/util/json_util.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

// What shows a user which names there are.
std::string HintOfResource(const std::string& resource) {
  if (absl::StrContains(resource, "/checkpoints/")) {
    return "megatrain checkpoint ls shows the checkpoints";
  }
  if (absl::StartsWith(resource, "jobs/")) {
    return "megatrain ps -a shows the jobs";
  }
  if (absl::StartsWith(resource, "models/")) {
    return "megatrain model ls shows the models";
  }
  if (absl::StartsWith(resource, "datasets/")) {
    return "megatrain dataset ls shows the data sets";
  }
  return "";
}

}  // namespace

void Session::PrintJson(const google::protobuf::Message& message, bool on_one_line) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !on_one_line;
  options.always_print_primitive_fields = true;
  std::string json;
  MT_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  out() << json << (on_one_line ? "\n" : "");
  out().flush();
}

void Session::PrintTable(const std::vector<std::string>& heading,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> lines;
  if (!options_.no_headers) {
    lines.push_back(heading);
  }
  for (const std::vector<std::string>& row : rows) {
    lines.emplace_back();
    for (const std::string& cell : row) {
      lines.back().push_back(Printable(cell));
      std::replace(lines.back().back().begin(), lines.back().back().end(), '\n', ' ');
    }
  }
  std::vector<int> widths(heading.size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], ColumnsOf(line[i]));
    }
  }
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const int padding = i + 1 < line.size() ? widths[i] - ColumnsOf(line[i]) + 2 : 0;
      out() << line[i] << std::string(static_cast<size_t>(padding), ' ');
    }
    out() << "\n";
  }
}

std::string Session::Command(const std::string& verb_and_arguments) const {
  const std::string address =
      options_.address.empty() ? "" : absl::StrCat(" --address ", options_.address);
  return absl::StrCat("megatrain ", verb_and_arguments, address);
}

bool UsesColor(const Environment& environment, const GlobalOptions& options) {
  if (options.color == "auto") {
    return environment.err_is_terminal && environment.variable("NO_COLOR").empty();
  }
  return options.color == "always";
}

void PrintError(Environment& environment, const GlobalOptions& options,
                const absl::Status& status) {
  const bool color = UsesColor(environment, options);
  const ErrorText text = DescribeError(status);
  std::ostream& err = environment.err;
  err << (color ? "\x1b[1;31merror:\x1b[0m " : "error: ") << Printable(text.what) << "\n";
  for (const std::string& because : text.because) {
    err << "because: " << Printable(because) << "\n";
  }
  const std::string hint = text.hint.empty() ? HintOfResource(text.resource) : text.hint;
  if (!hint.empty()) {
    err << "try: " << Printable(hint) << "\n";
  }
  if (!text.reason.empty()) {
    err << "reason: " << Printable(text.reason) << "\n";
  }
}

}  // namespace megatrain
