#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/interrupt_scope.h"
#include "client/cli/text.h"
#include "client/cli/verb_checkpoint_download.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "client/lib/follow.h"
#include "client/lib/random.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::CheckpointService::Stub;

constexpr int kPageSize = 1000;

void PrintCheckpoint(Session& session, const v1::Checkpoint& checkpoint,
                     const std::string& after_name) {
  if (session.wants_json()) {
    session.PrintJson(checkpoint);
  } else {
    session.out() << checkpoint.name() << (session.wants_names() ? "" : after_name) << std::endl;
  }
}

// What is special about it.
std::string Note(const v1::Checkpoint& checkpoint) {
  std::vector<std::string> notes;
  if (checkpoint.pinned()) {
    notes.emplace_back("pinned");
  }
  if (checkpoint.best()) {
    notes.emplace_back("best");
  }
  if (!checkpoint.damage().empty()) {
    notes.push_back(absl::StrCat("damaged: ", checkpoint.damage()));
  }
  return absl::StrJoin(notes, ", ");
}

std::vector<std::string> Row(const v1::Checkpoint& checkpoint, absl::Time now) {
  return {
      ShortCheckpointName(checkpoint.name()),
      absl::StrCat(checkpoint.step()),
      TriggerName(checkpoint.trigger()),
      FormatBytes(checkpoint.size_bytes()),
      checkpoint.has_evaluation_loss() ? absl::StrFormat("%.4f", checkpoint.evaluation_loss()) : "",
      FormatAge(checkpoint.create_time(), now),
      Note(checkpoint),
  };
}

absl::StatusOr<ExitCode> List(Session& session, const std::string& job) {
  v1::ListCheckpointsRequest request;
  request.set_parent(job.empty() ? "jobs/-" : FullName("jobs", job));
  request.set_page_size(kPageSize);
  v1::ListCheckpointsResponse checkpoints;
  do {
    MT_ASSIGN_OR_RETURN(
        const v1::ListCheckpointsResponse page,
        session.connection().Call(CallKind::kRead, &Stub::ListCheckpoints, request));
    checkpoints.mutable_checkpoints()->MergeFrom(page.checkpoints());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.wants_json()) {
    session.PrintJson(checkpoints);
    return ExitCode::kOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::Checkpoint& checkpoint : checkpoints.checkpoints()) {
    if (session.wants_names()) {
      session.out() << checkpoint.name() << "\n";
    }
    rows.push_back(Row(checkpoint, session.environment().clock.WallNow()));
  }
  if (session.wants_table()) {
    session.PrintTable({"CHECKPOINT", "STEP", "TRIGGER", "SIZE", "EVAL", "AGE", "NOTE"}, rows);
  }
  return ExitCode::kOk;
}

// The answer of CreateCheckpoint alone: there is no checkpoint yet.
void PrintAsked(Session& session, const v1::CreateCheckpointResponse& asked) {
  if (session.wants_json()) {
    session.PrintJson(asked);
  } else {
    session.out() << asked.job().name() << (session.wants_names() ? "" : " is going to be saved")
                  << std::endl;
  }
}

absl::StatusOr<ExitCode> Create(Session& session, const std::string& job, bool detach) {
  v1::CreateCheckpointRequest request;
  request.set_parent(job);
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(
      const v1::CreateCheckpointResponse asked,
      session.connection().Call(CallKind::kWrite, &Stub::CreateCheckpoint, request));
  if (detach) {
    PrintAsked(session, asked);
    return ExitCode::kOk;
  }
  const InterruptScope scope(session.environment().interruption);
  v1::WatchJobRequest cursor;
  cursor.set_name(job);
  cursor.set_after_sequence(asked.after_sequence());
  const absl::StatusOr<v1::Checkpoint> checkpoint = FollowCheckpoint(session.connection(), cursor);
  const std::string id = ShortName(job);
  if (session.environment().interruption.triggered()) {
    session.err() << "detached: it is saved all the same\n  "
                  << session.Command(absl::StrCat("checkpoint ls ", id)) << std::endl;
    return ExitCode::kInterrupted;
  }
  if (!checkpoint.ok()) {
    const bool is_full = checkpoint.status().code() == absl::StatusCode::kResourceExhausted;
    return is_full ? WithHint(checkpoint.status(),
                              absl::StrCat("free space on the server's disk, then ",
                                           session.Command(absl::StrCat("resume ", id))))
                   : checkpoint.status();
  }
  PrintCheckpoint(session, *checkpoint,
                  absl::StrCat(" saved, ", FormatBytes(checkpoint->size_bytes())));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Pin(Session& session, const std::string& name, bool pinned) {
  v1::UpdateCheckpointRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_checkpoint()->mutable_name(), CheckpointName(name));
  request.mutable_checkpoint()->set_pinned(pinned);
  request.mutable_update_mask()->add_paths("pinned");
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(
      const v1::Checkpoint checkpoint,
      session.connection().Call(CallKind::kWrite, &Stub::UpdateCheckpoint, request));
  PrintCheckpoint(session, checkpoint, pinned ? " pinned" : " unpinned");
  return ExitCode::kOk;
}

struct RemoveFlags {
  std::string name;
  bool yes = false;
  bool dry_run = false;
};

absl::StatusOr<ExitCode> Remove(Session& session, const RemoveFlags& flags) {
  v1::DeleteCheckpointRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_name(), CheckpointName(flags.name));
  const auto& ask = session.environment().ask;
  if (!flags.yes && !flags.dry_run && !ask) {
    return WithClientReason(WithHint(absl::InvalidArgumentError("nobody is there to be asked"),
                                     absl::StrCat("checkpoint rm ", flags.name, " --yes")),
                            "USAGE");
  }
  if (!flags.yes && !flags.dry_run && !ask(absl::StrCat("remove ", request.name(), "?"))) {
    session.err() << "nothing is removed" << std::endl;
    return ExitCode::kFailed;
  }
  request.set_validate_only(flags.dry_run);
  request.set_request_id(NewRequestId());
  MT_RETURN_IF_ERROR(
      session.connection().Call(CallKind::kWrite, &Stub::DeleteCheckpoint, request).status());
  if (session.wants_json()) {
    session.PrintJson(v1::DeleteCheckpointResponse());
  } else {
    session.out() << request.name()
                  << (session.wants_names() ? ""
                      : flags.dry_run       ? " can be removed"
                                            : " removed")
                  << std::endl;
  }
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Verify(Session& session, const std::string& text) {
  v1::VerifyCheckpointRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_name(), CheckpointName(text));
  MT_ASSIGN_OR_RETURN(
      const v1::VerifyCheckpointResponse answer,
      session.connection().Call(CallKind::kLongWrite, &Stub::VerifyCheckpoint, request));
  if (session.wants_json()) {
    session.PrintJson(answer);
    session.out() << std::flush;
  }
  if (!answer.valid()) {
    const std::string job = ShortName(JobOfCheckpoint(request.name()));
    return WithClientReason(
        WithHint(absl::DataLossError(absl::StrCat(request.name(), ": ", answer.failure())),
                 session.Command(absl::StrCat("checkpoint ls ", job))),
        "CHECKPOINT_CORRUPT");
  }
  if (!session.wants_json()) {
    session.out() << request.name() << (session.wants_names() ? "" : " is valid") << std::endl;
    session.err() << FormatBytes(answer.verified_bytes()) << " read" << std::endl;
  }
  return ExitCode::kOk;
}

void AddList(CLI::App& noun, Verb& chosen) {
  auto job = std::make_shared<std::string>();
  CLI::App* verb = noun.add_subcommand("ls", "Lists those of a job, or all");
  verb->add_option("JOB", *job, "The job's name");
  verb->callback(
      [job, &chosen] { chosen = [job](Session& session) { return List(session, *job); }; });
}

void AddCreate(CLI::App& noun, Verb& chosen) {
  struct Flags {
    std::string job;
    bool detach = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = noun.add_subcommand("create", "Saves a running job's state now");
  verb->add_option("JOB", flags->job, "The job's name")->required();
  verb->add_flag("--detach", flags->detach, "Does not wait until it is saved");
  verb->callback([flags, &chosen] {
    chosen = [flags](Session& session) {
      return Create(session, FullName("jobs", flags->job), flags->detach);
    };
  });
}

void AddRemove(CLI::App& noun, Verb& chosen) {
  auto flags = std::make_shared<RemoveFlags>();
  CLI::App* verb = noun.add_subcommand("rm", "Removes one for good");
  verb->add_option("CHECKPOINT", flags->name, "JOB/CHECKPOINT")->required();
  verb->add_flag("--yes", flags->yes, "Does not ask");
  verb->add_flag("--dry-run", flags->dry_run, "Checks whether it can be removed");
  verb->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Remove(session, *flags); }; });
}

// A verb that takes one checkpoint and no flags.
void AddPlain(CLI::App& noun, Verb& chosen, const char* name, const char* description,
              const std::function<absl::StatusOr<ExitCode>(Session&, const std::string&)>& run) {
  auto checkpoint = std::make_shared<std::string>();
  CLI::App* verb = noun.add_subcommand(name, description);
  verb->add_option("CHECKPOINT", *checkpoint, "JOB/CHECKPOINT")->required();
  verb->callback([checkpoint, run, &chosen] {
    chosen = [checkpoint, run](Session& session) { return run(session, *checkpoint); };
  });
}

}  // namespace

void AddCheckpoint(CLI::App& app, Verb& chosen) {
  CLI::App* noun = app.add_subcommand("checkpoint", "Saved states of jobs");
  noun->require_subcommand(1);
  AddList(*noun, chosen);
  AddCreate(*noun, chosen);
  AddRemove(*noun, chosen);
  AddPlain(*noun, chosen, "pin", "Keeps one until it is unpinned",
           [](Session& session, const std::string& name) { return Pin(session, name, true); });
  AddPlain(*noun, chosen, "unpin", "Leaves one to its job's retention again",
           [](Session& session, const std::string& name) { return Pin(session, name, false); });
  AddPlain(*noun, chosen, "verify", "Has the server read one and compare its checksums", Verify);
  AddCheckpointDownload(*noun, chosen);
}

}  // namespace megatrain
