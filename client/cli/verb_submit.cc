#include <memory>
#include <string>
#include <vector>

#include "client/cli/job_file.h"
#include "client/cli/new_job.h"
#include "client/cli/verbs.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

struct SubmitFlags {
  std::string file;
  std::vector<std::string> settings;
  NewJobFlags job;
};

absl::StatusOr<ExitCode> Submit(Session& session, const SubmitFlags& flags) {
  MT_ASSIGN_OR_RETURN(const v1::CreateJobRequest request, ReadJobFile(flags.file, flags.settings));
  MT_ASSIGN_OR_RETURN(const v1::Job job,
                      SendNewJob(session, &v1::JobService::Stub::CreateJob, request, flags.job));
  return ReportNewJob(session, job, flags.job);
}

}  // namespace

void AddSubmit(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* verb = app.add_subcommand("submit", "Submits a job");
  verb->add_option("FILE", flags->file, "The job file, in YAML")->required();
  verb->add_option("--set", flags->settings, "Lays key=value over the file: train.steps=10")
      ->allow_extra_args(false);
  AddNewJobFlags(*verb, flags->job);
  verb->footer("Example: megatrain submit job.yaml --set train.steps=10 --follow");
  verb->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Submit(session, *flags); }; });
}

}  // namespace megatrain
