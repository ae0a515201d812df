#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/interrupt_scope.h"
#include "client/cli/poll.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "client/lib/random.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::ModelService::Stub;

constexpr int kPageSize = 1000;

// As the server sees it, when it is on the same machine.
std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

struct ImportFlags {
  std::string path;
  std::string name;
  bool wait = false;
};

absl::StatusOr<v1::ModelVersion> WaitForImport(Session& session, const std::string& name) {
  v1::GetModelVersionRequest request;
  request.set_name(name);
  const InterruptScope scope(session.environment().interruption);
  return PollUntil<v1::ModelVersion>(
      session.connection(),
      [&] { return session.connection().Call(CallKind::kRead, &Stub::GetModelVersion, request); },
      [](const v1::ModelVersion& version) { return version.state() != v1::MODEL_STATE_IMPORTING; });
}

void PrintVersion(Session& session, const v1::ModelVersion& version) {
  if (session.wants_json()) {
    session.PrintJson(version);
  } else {
    session.out() << version.name()
                  << (session.wants_names() ? "" : " " + StateName(version.state())) << "\n";
  }
}

absl::StatusOr<ExitCode> Import(Session& session, const ImportFlags& flags) {
  v1::ImportModelRequest request;
  request.set_model_id(ShortName(FullName("models", flags.name)));
  request.set_path(AbsolutePath(flags.path));
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(v1::ModelVersion version,
                      session.connection().Call(CallKind::kWrite, &Stub::ImportModel, request));
  if (flags.wait) {
    MT_ASSIGN_OR_RETURN(version, WaitForImport(session, version.name()));
  }
  if (version.state() == v1::MODEL_STATE_FAILED) {
    return WithClientReason(absl::UnknownError(version.failure()), "IMPORT_FAILED");
  }
  PrintVersion(session, version);
  if (version.state() == v1::MODEL_STATE_IMPORTING) {
    session.err() << "Next:\n  " << session.Command("model ls") << std::endl;
  } else if (!version.trainable()) {
    session.err() << "warning: it cannot be trained yet: " << Printable(version.failure())
                  << std::endl;
  }
  return ExitCode::kOk;
}

struct ExportFlags {
  std::string name;  // with a checkpoint, the path
  std::string path;
  std::string checkpoint;
};

absl::StatusOr<v1::ExportModelRequest> MakeExport(const ExportFlags& flags) {
  const bool is_checkpoint = !flags.checkpoint.empty();
  if (flags.name.empty() || flags.path.empty() != is_checkpoint) {
    return WithClientReason(
        WithHint(absl::InvalidArgumentError("export wants NAME PATH, or --checkpoint NAME PATH"),
                 "megatrain model export --help"),
        "USAGE");
  }
  v1::ExportModelRequest request;
  request.set_name(FullName("models", flags.name));
  if (is_checkpoint) {
    MT_ASSIGN_OR_RETURN(*request.mutable_name(), CheckpointName(flags.checkpoint));
  }
  request.set_path(AbsolutePath(is_checkpoint ? flags.name : flags.path));
  return request;
}

absl::StatusOr<ExitCode> Export(Session& session, const ExportFlags& flags) {
  MT_ASSIGN_OR_RETURN(v1::ExportModelRequest request, MakeExport(flags));
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(const v1::ExportModelResponse response,
                      session.connection().Call(CallKind::kLongWrite, &Stub::ExportModel, request));
  if (session.wants_json()) {
    session.PrintJson(response);
  } else {
    session.out() << response.path() << "\n";
  }
  session.err() << response.name() << ": " << FormatBytes(response.size_bytes()) << " written"
                << std::endl;
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> List(Session& session) {
  v1::ListModelVersionsRequest request;
  request.set_page_size(kPageSize);
  v1::ListModelVersionsResponse versions;
  do {
    MT_ASSIGN_OR_RETURN(
        const v1::ListModelVersionsResponse page,
        session.connection().Call(CallKind::kRead, &Stub::ListModelVersions, request));
    versions.mutable_model_versions()->MergeFrom(page.model_versions());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.wants_json()) {
    session.PrintJson(versions);
    return ExitCode::kOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::ModelVersion& version : versions.model_versions()) {
    if (session.wants_names()) {
      session.out() << version.name() << "\n";
    }
    rows.push_back({version.name(), StateName(version.state()), version.architecture(),
                    FormatCount(version.parameter_count()), FormatBytes(version.size_bytes()),
                    version.failure().empty() ? version.source() : version.failure()});
  }
  if (session.wants_table()) {
    session.PrintTable({"MODEL", "STATE", "ARCHITECTURE", "PARAMETERS", "SIZE", "SOURCE"}, rows);
  }
  return ExitCode::kOk;
}

void AddImport(CLI::App& noun, Verb& chosen) {
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* verb = noun.add_subcommand("import",
                                       "Copies a Hugging Face folder of the server's "
                                       "machine into its store");
  verb->add_option("PATH", flags->path, "The folder")->required();
  verb->add_option("--name", flags->name, "The model's name")->required();
  verb->add_flag("--wait", flags->wait, "Waits until it is imported");
  verb->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Import(session, *flags); }; });
}

void AddExport(CLI::App& noun, Verb& chosen) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* verb =
      noun.add_subcommand("export", "Writes a model as a Hugging Face folder on the server");
  verb->add_option("NAME", flags->name, "A model (its newest version) or a version");
  verb->add_option("PATH", flags->path, "A folder that does not exist yet");
  verb->add_option("--checkpoint", flags->checkpoint,
                   "JOB/CHECKPOINT, whose weights are written; in place of NAME");
  verb->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Export(session, *flags); }; });
}

}  // namespace

void AddModel(CLI::App& app, Verb& chosen) {
  CLI::App* noun = app.add_subcommand("model", "Models in the server's store");
  noun->require_subcommand(1);
  AddImport(*noun, chosen);
  AddExport(*noun, chosen);
  CLI::App* ls = noun->add_subcommand("ls", "Lists them");
  ls->callback([&chosen] { chosen = List; });
}

}  // namespace megatrain
