#include "server/datasets/data_preparer.h"

#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr size_t kQuotedBytes = 2000;

// The last line, which is the result; null when it is no JSON object.
nlohmann::json ResultIn(const std::string& output) {
  const std::string trimmed = output.substr(0, output.find_last_not_of('\n') + 1);
  const size_t line = trimmed.rfind('\n');
  nlohmann::json result =
      nlohmann::json::parse(line == std::string::npos ? trimmed : trimmed.substr(line + 1),
                            /*cb=*/nullptr, /*allow_exceptions=*/false);
  return result.is_object() && result.value("ok", nlohmann::json()).is_boolean() ? std::move(result)
                                                                                 : nlohmann::json();
}

int64_t CountIn(const nlohmann::json& result, const char* name) {
  const auto field = result.find(name);
  return field != result.end() && field->is_number_integer() ? field->get<int64_t>() : 0;
}

std::string OnBadRow(bool skip) { return skip ? "skip" : "error"; }

}  // namespace

absl::StatusOr<DataPreparer::CheckResult> DataPreparer::Check(const std::string& data_path,
                                                              bool skip_bad_rows) {
  MT_ASSIGN_OR_RETURN(
      const nlohmann::json result,
      Run("", "check", {"--input", data_path, "--on-bad-row", OnBadRow(skip_bad_rows)}));
  return CheckResult{CountIn(result, "row_count"), CountIn(result, "skipped_row_count")};
}

absl::Status DataPreparer::Tokenize(const TokenizeRequest& request) {
  const std::vector<std::string> arguments = {
      "--input",
      request.data_path,
      "--on-bad-row",
      OnBadRow(request.skip_bad_rows),
      "--on-untrained-row",
      OnBadRow(request.skip_untrained_rows),
      "--model",
      request.model_path,
      "--vocabulary-size",
      absl::StrCat(request.vocabulary_size),
      "--max-sequence-length",
      absl::StrCat(request.max_sequence_length),
      "--now",
      absl::StrCat(absl::ToUnixSeconds(request.template_time)),
      "--fingerprint",
      request.fingerprint,
      "--staging",
      request.staging_path,
      "--output",
      request.output_path};
  return Run(request.run_name, "tokenize", arguments).status();
}

void DataPreparer::Stop(const std::string& run_name) {
  MutexLock lock(&mutex_);
  const auto [begin, end] = running_.equal_range(run_name);
  for (auto run = begin; run != end; ++run) run->second->Kill();
}

void DataPreparer::StopAll() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (const auto& [name, process] : running_) process->Kill();
}

absl::StatusOr<nlohmann::json> DataPreparer::Run(const std::string& run_name,
                                                 const std::string& mode,
                                                 const std::vector<std::string>& arguments) {
  std::unique_ptr<HelperProcess> process;
  std::multimap<std::string, HelperProcess*>::iterator place;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("the server stops");
    MT_ASSIGN_OR_RETURN(process, HelperProcess::Start(MakeCommand(mode, arguments), clock_));
    place = running_.emplace(run_name, process.get());
  }
  const HelperProcess::Outcome outcome = process->Wait(options_.time_limit);
  {
    MutexLock lock(&mutex_);
    running_.erase(place);
  }
  const nlohmann::json result = ResultIn(outcome.output);
  if (result.is_null() || outcome.exit_code < 0) return DeathOf(outcome);
  if (!result["ok"].get<bool>()) {
    const std::string error = result.value("error", "the helper gave no reason");
    const int64_t error_number = CountIn(result, "error_number");  // of the system's errors
    return error_number == 0
               ? absl::InvalidArgumentError(error)
               : absl::Status(absl::ErrnoToStatusCode(static_cast<int>(error_number)), error);
  }
  return result;
}

HelperProcess::Command DataPreparer::MakeCommand(const std::string& mode,
                                                 const std::vector<std::string>& arguments) const {
  // One second more than the clock's limit, which tells the better reason.
  const int64_t cpu_seconds = absl::ToInt64Seconds(options_.time_limit) + 1;
  HelperProcess::Command command;
  command.arguments = {options_.python,
                       "-s",
                       "-B",
                       "-P",
                       "-m",
                       "prepare",
                       mode,
                       "--max-row-bytes",
                       absl::StrCat(options_.max_row_bytes),
                       "--memory-limit-bytes",
                       absl::StrCat(options_.memory_limit_bytes),
                       "--cpu-limit-seconds",
                       absl::StrCat(cpu_seconds),
                       "--file-limit-bytes",
                       absl::StrCat(options_.file_limit_bytes),
                       "--parent-pid",
                       absl::StrCat(::getpid())};
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  command.environment = {absl::StrCat("PYTHONPATH=", options_.archive, ":", options_.python_path),
                         "PYTHONUTF8=1", "LC_ALL=C.UTF-8", "TOKENIZERS_PARALLELISM=false"};
  return command;
}

absl::Status DataPreparer::DeathOf(const HelperProcess::Outcome& outcome) const {
  if (outcome.killed) return absl::CancelledError("the preparation of the data was stopped");
  if (outcome.timed_out || outcome.signal == SIGXCPU) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reading the data took longer than ", absl::FormatDuration(options_.time_limit),
        " and was stopped: use less data, or look for a loop in the chat template"));
  }
  if (outcome.signal == SIGKILL) {
    return absl::ResourceExhaustedError(
        "the helper that reads the data was killed, perhaps because the machine is out of memory");
  }
  if (outcome.signal != 0) {
    return absl::InternalError(
        absl::StrCat("the helper that reads the data was ended by signal ", outcome.signal));
  }
  const std::string& errors = outcome.errors;
  return absl::InternalError(absl::StrCat(
      "the helper that reads the data failed with exit code ", outcome.exit_code, ": ",
      errors.size() > kQuotedBytes ? errors.substr(errors.size() - kQuotedBytes) : errors));
}

}  // namespace megatrain
