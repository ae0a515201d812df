#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/job_file.h"
#include "client/cli/plan_text.h"
#include "client/cli/text_file.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kModelConfigLimitBytes = int64_t{1} << 20;
constexpr int64_t kMachineLimitBytes = int64_t{64} << 10;

struct PlanFlags {
  std::string file;
  std::string model_config;
  std::string machine;
  std::vector<std::string> settings;
};

// A file's content, where there is one of that name; else a name that the server may know.
absl::StatusOr<std::string> MachineText(const std::string& machine) {
  std::error_code error;
  if (machine.empty() || !std::filesystem::is_regular_file(machine, error)) {
    return machine;
  }
  MT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(machine, kMachineLimitBytes));
  const std::string content(absl::StripAsciiWhitespace(text));
  if (!content.starts_with('{')) {
    return absl::InvalidArgumentError(
        absl::StrCat(machine, " is no machine's file: it does not begin with {"));
  }
  return content;
}

absl::StatusOr<v1::PlanJobRequest> MakeRequest(const PlanFlags& flags) {
  if (flags.file.empty() && flags.model_config.empty()) {
    return WithHint(absl::InvalidArgumentError("plan wants a job file or --model-config"),
                    "megatrain plan job.yaml");
  }
  MT_ASSIGN_OR_RETURN(const v1::CreateJobRequest job,
                      flags.file.empty() ? ReadJobSettings(flags.settings)
                                         : ReadJobFile(flags.file, flags.settings));
  v1::PlanJobRequest request;
  *request.mutable_spec() = job.spec();
  if (!flags.model_config.empty()) {
    MT_ASSIGN_OR_RETURN(*request.mutable_model_config_json(),
                        ReadTextFile(flags.model_config, kModelConfigLimitBytes));
  }
  MT_ASSIGN_OR_RETURN(*request.mutable_machine(), MachineText(flags.machine));
  return request;
}

absl::StatusOr<ExitCode> MakePlan(Session& session, const PlanFlags& flags) {
  MT_ASSIGN_OR_RETURN(const v1::PlanJobRequest request, MakeRequest(flags));
  MT_ASSIGN_OR_RETURN(
      const v1::Plan plan,
      session.connection().Call(CallKind::kRead, &v1::JobService::Stub::PlanJob, request));
  if (session.wants_json()) {
    session.PrintJson(plan);
  } else {
    for (const std::string& line : ExplainedPlanLines(plan)) {
      session.out() << line << "\n";
    }
  }
  return plan.fits() ? ExitCode::kOk : ExitCode::kPrecondition;
}

}  // namespace

void AddPlan(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* verb = app.add_subcommand("plan", "Tells what a job would take, and whether it fits");
  verb->add_option("FILE", flags->file, "The job file, in YAML");
  verb->add_option("--model-config", flags->model_config,
                   "A config.json in place of the job's model: any known shape can be planned");
  verb->add_option("--machine", flags->machine,
                   "Plans for another machine: h200-1536g, rtx3090-128g, a100-pcie, or a file of "
                   "its speeds and sizes: an engine's machine/profile.json with sizes added");
  verb->add_option("--set", flags->settings, "Lays key=value over the file: train.batch_rows=64")
      ->allow_extra_args(false);
  verb->footer(
      "Exit code 6 when it does not fit. Example: megatrain plan --model-config "
      "config.json --machine h200-1536g --set train.batch_rows=64");
  verb->callback([flags, &chosen] {
    chosen = [flags](Session& session) { return MakePlan(session, *flags); };
  });
}

}  // namespace megatrain
