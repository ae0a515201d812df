#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/interrupt_scope.h"
#include "client/cli/poll.h"
#include "client/cli/text.h"
#include "client/cli/upload_output.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "client/lib/random.h"
#include "client/lib/upload.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::DatasetService::Stub;

constexpr int kPageSize = 1000;

struct UploadFlags {
  std::string file;
  std::string name;
  std::string on_bad_row = "error";
};

absl::StatusOr<v1::Dataset> WaitForCheck(Session& session, const std::string& name) {
  v1::GetDatasetRequest request;
  request.set_name(name);
  return PollUntil<v1::Dataset>(
      session.connection(),
      [&] { return session.connection().Call(CallKind::kRead, &Stub::GetDataset, request); },
      [](const v1::Dataset& dataset) { return dataset.state() != v1::DATASET_STATE_CHECKING; });
}

absl::StatusOr<ExitCode> Upload(Session& session, const UploadFlags& flags) {
  const InterruptScope scope(session.environment().interruption);
  UploadPrinter printer(session);
  absl::StatusOr<v1::Upload> upload = UploadFile(session.connection(), flags.file, printer);
  printer.Clear();
  if (!upload.ok()) {
    return session.environment().interruption.triggered()
               ? WithHint(upload.status(), "the same command goes on where this one stopped")
               : upload.status();
  }
  v1::CreateDatasetRequest request;
  request.set_dataset_id(ShortName(FullName("datasets", flags.name)));
  request.set_upload(upload->name());
  request.set_on_bad_row(flags.on_bad_row);
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(v1::Dataset dataset,
                      session.connection().Call(CallKind::kWrite, &Stub::CreateDataset, request));
  MT_ASSIGN_OR_RETURN(dataset, WaitForCheck(session, dataset.name()));
  if (dataset.state() == v1::DATASET_STATE_FAILED) {
    return WithClientReason(absl::UnknownError(absl::StrCat(flags.file, ": ", dataset.failure())),
                            "BAD_DATASET");
  }
  if (session.wants_json()) {
    session.PrintJson(dataset);
  } else {
    session.out() << dataset.name() << "\n";
  }
  session.err() << dataset.row_count() << " rows, " << dataset.skipped_row_count() << " skipped, "
                << FormatBytes(dataset.size_bytes()) << std::endl;
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> List(Session& session) {
  v1::ListDatasetsRequest request;
  request.set_page_size(kPageSize);
  v1::ListDatasetsResponse datasets;
  do {
    MT_ASSIGN_OR_RETURN(const v1::ListDatasetsResponse page,
                        session.connection().Call(CallKind::kRead, &Stub::ListDatasets, request));
    datasets.mutable_datasets()->MergeFrom(page.datasets());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.wants_json()) {
    session.PrintJson(datasets);
    return ExitCode::kOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::Dataset& dataset : datasets.datasets()) {
    if (session.wants_names()) {
      session.out() << dataset.name() << "\n";
    }
    rows.push_back({dataset.name(), StateName(dataset.state()), absl::StrCat(dataset.row_count()),
                    absl::StrCat(dataset.skipped_row_count()), FormatBytes(dataset.size_bytes()),
                    FormatAge(dataset.create_time(), session.environment().clock.WallNow()),
                    dataset.failure()});
  }
  if (session.wants_table()) {
    session.PrintTable({"DATASET", "STATE", "ROWS", "SKIPPED", "SIZE", "AGE", "FAILURE"}, rows);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDataset(CLI::App& app, Verb& chosen) {
  CLI::App* noun = app.add_subcommand("dataset", "Data sets on the server");
  noun->require_subcommand(1);
  auto flags = std::make_shared<UploadFlags>();
  CLI::App* upload = noun->add_subcommand("upload", "Uploads and checks a JSONL file");
  upload->add_option("FILE", flags->file, "One {\"messages\": [...]} a line")->required();
  upload->add_option("--name", flags->name, "The data set's name")->required();
  upload->add_option("--on-bad-row", flags->on_bad_row, "error, or skip")
      ->check(CLI::IsMember({"error", "skip"}));
  upload->footer("A repeat goes on where an interrupted upload stopped.");
  upload->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Upload(session, *flags); }; });
  CLI::App* ls = noun->add_subcommand("ls", "Lists them");
  ls->callback([&chosen] { chosen = List; });
}

}  // namespace megatrain
