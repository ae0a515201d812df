#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/job_file.h"
#include "client/cli/new_job.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

struct ForkFlags {
  std::string source;
  JobChanges changes;
  std::string name;
  bool weights_only = false;
  NewJobFlags job;
};

absl::StatusOr<v1::Job> GetJob(Session& session, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return session.connection().Call(CallKind::kRead, &v1::JobService::Stub::GetJob, request);
}

// What is named, or the last one of the job that is named.
absl::StatusOr<std::string> CheckpointOf(Session& session, const std::string& source) {
  if (NamesCheckpoint(source)) {
    return CheckpointName(source);
  }
  MT_ASSIGN_OR_RETURN(const v1::Job job, GetJob(session, FullName("jobs", source)));
  if (job.last_checkpoint().empty()) {
    const std::string verb = IsFinal(job.state())
                                 ? "submit FILE"
                                 : absl::StrCat("checkpoint create ", ShortName(job.name()));
    return WithClientReason(WithHint(absl::FailedPreconditionError(
                                         absl::StrCat(job.name(), " has no checkpoint to fork")),
                                     session.Command(verb)),
                            "NO_CHECKPOINT");
  }
  return job.last_checkpoint();
}

// Lays the changes over what the checkpoint's job trains.
absl::Status AddChanges(Session& session, const JobChanges& changes, v1::ForkJobRequest& request) {
  MT_ASSIGN_OR_RETURN(const v1::Job job, GetJob(session, JobOfCheckpoint(request.checkpoint())));
  v1::CreateJobRequest base;
  *base.mutable_spec() = job.spec();
  base.mutable_spec()->clear_output();  // the fork's own, unless it is named
  MT_ASSIGN_OR_RETURN(v1::CreateJobRequest changed, ReadJobChanges(std::move(base), changes));
  request.mutable_spec()->Swap(changed.mutable_spec());
  request.set_display_name(changed.display_name());
  request.mutable_labels()->swap(*changed.mutable_labels());
  return absl::OkStatus();
}

absl::StatusOr<ExitCode> Fork(Session& session, const ForkFlags& flags) {
  v1::ForkJobRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_checkpoint(), CheckpointOf(session, flags.source));
  request.set_mode(flags.weights_only ? v1::FORK_MODE_WEIGHTS : v1::FORK_MODE_FULL_STATE);
  request.set_job_id(flags.name.empty() ? "" : ShortName(FullName("jobs", flags.name)));
  if (!flags.changes.empty()) {
    MT_RETURN_IF_ERROR(AddChanges(session, flags.changes, request));
  }
  MT_ASSIGN_OR_RETURN(const v1::Job job,
                      SendNewJob(session, &v1::JobService::Stub::ForkJob, request, flags.job));
  return ReportNewJob(session, job, flags.job);
}

}  // namespace

void AddFork(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<ForkFlags>();
  CLI::App* verb =
      app.add_subcommand("fork", "Makes a new job that goes on from another one's checkpoint");
  verb->add_option("SOURCE", flags->source, "A checkpoint, or a job: then its last whole one")
      ->required();
  verb->add_option("FILE", flags->changes.path, "A job file with what is to be different");
  verb->add_option("--set", flags->changes.settings,
                   "What is to be different, key=value: train.optimizer.learning_rate=1e-6")
      ->allow_extra_args(false);
  verb->add_option("--name", flags->name, "The new job's name (else the server makes one)");
  verb->add_flag("--weights-only", flags->weights_only,
                 "Takes the weights and begins at step 0, also with another data set");
  AddNewJobFlags(*verb, flags->job);
  verb->footer(
      "Example: megatrain fork addition/step-00000120 --name cooler "
      "--set train.optimizer.learning_rate=1e-6");
  verb->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Fork(session, *flags); }; });
}

}  // namespace megatrain
