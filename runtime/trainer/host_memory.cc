#include "runtime/trainer/host_memory.h"

#include <unistd.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/locked_memory_limit.h"
#include "runtime/planner/planner.h"

namespace megatrain {
namespace {

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration));
}

std::string PagesText(const HostStore::PopulateReport& report) {
  const std::string small = absl::StrCat("pages of ", FormatBytes(sysconf(_SC_PAGESIZE)));
  const double huge_share =
      100.0 * static_cast<double>(report.huge_page_bytes) / static_cast<double>(report.size_bytes);
  return report.huge_page_bytes == 0
             ? absl::StrCat(small, ": the system gave no huge ones")
             : absl::StrFormat("%.0f %% of it in huge pages, the rest in %s", huge_share, small);
}

// What copies of memory that is not pinned are slower by.
std::string CostText(ModelSession& session) {
  const absl::StatusOr<ModelSession::CopySpeeds> speeds = session.MeasureCopies();
  return speeds.ok()
             ? absl::StrFormat("the rest crosses at %.1f GB/s instead of %.1f GB/s",
                               speeds->pageable / 1e9, speeds->pinned / 1e9)
             : absl::StrCat("the rest crosses more slowly, how much could not be measured: ",
                            std::string(speeds.status().message()));
}

}  // namespace

absl::Status PrepareMemory(ModelSession& session, JobProgress& progress) {
  const absl::Duration start = progress.Now();
  MT_ASSIGN_OR_RETURN(const HostStore::PopulateReport report,
                      session.Populate(progress.FollowUntilStop(TrainPhase::kPreparingMemory)));
  progress.Log(absl::StrCat("host memory: ", FormatBytes(report.size_bytes), " prepared in ",
                            SecondsText(progress.Now() - start), ", ", PagesText(report)));
  return absl::OkStatus();
}

absl::Status PinMemory(ModelSession& session, const PipelineOptions& options,
                       JobProgress& progress) {
  const absl::Duration start = progress.Now();
  MT_ASSIGN_OR_RETURN(const HostStore::PinReport report,
                      session.Pin(options, progress.FollowUntilStop(TrainPhase::kPinning)));
  if (report.requested_bytes == 0) {
    return absl::OkStatus();
  }
  const std::string took =
      absl::StrCat(" in ", SecondsText(progress.Now() - start),
                   ", limit on locked memory (RLIMIT_MEMLOCK): ", LockedMemoryLimit());
  progress.Log(report.refusal.ok()
                   ? absl::StrCat("host memory: ", FormatBytes(report.pinned_bytes),
                                  ", all that crosses the bus, pinned", took)
                   : absl::StrCat("host memory: ", FormatBytes(report.pinned_bytes), " of the ",
                                  FormatBytes(report.requested_bytes), " that cross the bus pinned",
                                  took, "; then refused: ", std::string(report.refusal.message()),
                                  "; ", CostText(session)));
  return absl::OkStatus();
}

}  // namespace megatrain
