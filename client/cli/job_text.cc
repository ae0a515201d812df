#include "client/cli/job_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Two columns: what to type, what it does.
std::string Choice(const std::string& command, const std::string& effect) {
  return absl::StrFormat("  %-32s  %s", command, effect);
}

std::vector<std::string> HoldingAdvice(const v1::Job& job, const CommandText& command) {
  const std::string id = ShortName(job.name());
  const std::string saved =
      job.last_checkpoint().empty()
          ? "gives up all of its steps"
          : absl::StrCat("gives up what came after ", ShortCheckpointName(job.last_checkpoint()));
  return {
      absl::StrCat(job.name(), " holds after step ", job.last_step().step(),
                   ", which cannot be saved: ", job.reason().message()),
      absl::StrCat("its state is in the server's memory; ", job.reason().code() == "DISK_FULL"
                                                                ? "free space on its disk, then:"
                                                                : "mend its disk, then:"),
      Choice(command(absl::StrCat("resume ", id)), "saves it and goes on"),
      Choice(command(absl::StrCat("pause ", id)), "saves it and stops"),
      Choice(command(absl::StrCat("cancel ", id)), saved),
  };
}

std::string EvaluationWords(const v1::EvaluationRecord& evaluation) {
  return absl::StrFormat("%.4f after step %d", evaluation.loss(), evaluation.step());
}

void AddSavedFacts(const v1::Job& job, Facts& facts) {
  if (job.has_last_evaluation()) {
    facts.emplace_back("validation loss", EvaluationWords(job.last_evaluation()));
    facts.emplace_back("best", absl::StrCat(EvaluationWords(job.best_evaluation()),
                                            job.best_checkpoint().empty() ? "" : ", ",
                                            ShortCheckpointName(job.best_checkpoint())));
  }
  const std::pair<const char*, std::string> checkpoints[] = {
      {"last checkpoint", job.last_checkpoint()},
      {"resumed from", job.resumed_from()},
      {"forked from", job.forked_from()},
  };
  for (const auto& [name, checkpoint] : checkpoints) {
    if (!checkpoint.empty()) {
      facts.emplace_back(name, ShortCheckpointName(checkpoint));
    }
  }
  if (!job.forked_from().empty() && job.fork_mode() == v1::FORK_MODE_WEIGHTS) {
    facts.back().second += ", weights only";
  }
}

void AddTimeFacts(const v1::Job& job, absl::Time now, Facts& facts) {
  const std::pair<const char*, const google::protobuf::Timestamp*> times[] = {
      {"accepted", &job.create_time()}, {"started", &job.start_time()}, {"ended", &job.end_time()}};
  for (const auto& [name, time] : times) {
    if (const std::string age = FormatAge(*time, now); !age.empty()) {
      facts.emplace_back(name, age + " ago");
    }
  }
}

}  // namespace

bool IsHolding(const v1::Job& job) { return job.phase() == "holding" && !IsFinal(job.state()); }

std::string StateWords(const v1::Job& job) {
  std::string words = StateName(job.state());
  if (job.held()) {
    words += ", held";
  } else if (!job.phase().empty() && job.phase() != "training" && !IsFinal(job.state())) {
    absl::StrAppend(&words, ", ", job.phase());
  }
  if (job.stopped_early()) {
    words += ", stopped early";
  }
  return words;
}

std::vector<std::string> Advice(const v1::Job& job, const CommandText& command) {
  if (IsHolding(job)) {
    return HoldingAdvice(job, command);
  }
  const std::string resume = command(absl::StrCat("resume ", ShortName(job.name())));
  const std::string saved = ShortCheckpointName(job.last_checkpoint());
  if (job.state() == v1::JOB_STATE_PAUSED) {
    return {absl::StrCat(job.name(), " is paused", saved.empty() ? "" : ", saved as ", saved, ":"),
            Choice(resume, "goes on")};
  }
  if (job.held()) {
    return {absl::StrCat(job.name(), " is held in the queue:"), Choice(resume, "lets it go")};
  }
  if (job.state() == v1::JOB_STATE_QUEUED && job.phase() == "publishing") {
    return {absl::StrCat(job.name(), " waits: ", job.reason().message()),
            Choice(resume, "tries again now")};
  }
  const bool lacks_result =
      job.state() == v1::JOB_STATE_FAILED || job.state() == v1::JOB_STATE_CANCELLED;
  if (lacks_result && !saved.empty()) {
    return {absl::StrCat(job.name(), " is saved as ", saved, ":"),
            Choice(command(absl::StrCat("fork ", saved)), "goes on from there, as a new job")};
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> JobFacts(const v1::Job& job, absl::Time now) {
  Facts facts = {{"job", job.name()}};
  if (!job.display_name().empty()) {
    facts.emplace_back("title", job.display_name());
  }
  facts.emplace_back("state",
                     absl::StrCat(StateWords(job), job.reason().message().empty() ? "" : ": ",
                                  job.reason().message()));
  if (job.has_last_step()) {
    facts.emplace_back("step",
                       absl::StrCat(job.last_step().step(), " of ", job.planned_step_count()));
    facts.emplace_back("loss", absl::StrFormat("%.4f", job.last_step().loss()));
  }
  AddSavedFacts(job, facts);
  if (job.attempt() > 1) {
    facts.emplace_back("attempt", absl::StrCat(job.attempt()));
  }
  if (job.spec().priority() != 0) {
    facts.emplace_back("priority", absl::StrCat(job.spec().priority()));
  }
  facts.emplace_back("model", job.spec().model());
  facts.emplace_back("data set", job.spec().dataset());
  facts.emplace_back("output",
                     job.output_version().empty() ? job.spec().output() : job.output_version());
  AddTimeFacts(job, now, facts);
  return facts;
}

}  // namespace megatrain
