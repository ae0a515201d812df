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
#include "runtime/pipeline/slab_pool.h"
#include "runtime/pipeline/step_pipeline.h"
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

// What copies of memory that is not pinned are slower by. Before the pipeline has the memory that
// measuring takes.
std::string CostText(ModelSession& session) {
  const absl::StatusOr<ModelSession::CopySpeeds> speeds = session.MeasureCopies();
  return speeds.ok() ? absl::StrFormat("at %.1f GB/s instead of %.1f GB/s", speeds->pageable / 1e9,
                                       speeds->pinned / 1e9)
                     : absl::StrCat("more slowly, how much could not be measured: ",
                                    std::string(speeds.status().message()));
}

// Of `size_bytes` of `what`, some pinned.
struct PartlyPinned {
  const char* what;
  int64_t pinned_bytes;
  int64_t size_bytes;
  const absl::Status& refusal;
};

// `cost` says how the rest crosses.
std::string RefusalText(const PartlyPinned& memory, const std::string& took,
                        const std::string& cost) {
  return absl::StrCat(FormatBytes(memory.pinned_bytes), " of the ", FormatBytes(memory.size_bytes),
                      " ", memory.what, " pinned", took,
                      "; then refused: ", std::string(memory.refusal.message()),
                      "; the rest crosses ", cost);
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
  if (options.pin == PinMode::kSlabs) {
    progress.Log(absl::StrCat(
        "host memory: stays pageable, as placement.pin says; it crosses "
        "through ",
        FormatBytes(SlabPool::Bytes(session.layout())), " of slabs, ", CostText(session)));
    return absl::OkStatus();
  }
  if (report.requested_bytes == 0) {
    return absl::OkStatus();
  }
  const std::string took =
      absl::StrCat(" in ", SecondsText(progress.Now() - start),
                   ", limit on locked memory (RLIMIT_MEMLOCK): ", LockedMemoryLimit());
  if (report.refusal.ok()) {
    progress.Log(absl::StrCat("host memory: ", FormatBytes(report.pinned_bytes),
                              ", all that crosses the bus, pinned", took));
  } else if (options.pin == PinMode::kAuto) {
    progress.Log(absl::StrCat("host memory: ", RefusalText({.what = "that cross the bus",
                                                            .pinned_bytes = report.pinned_bytes,
                                                            .size_bytes = report.requested_bytes,
                                                            .refusal = report.refusal},
                                                           took, CostText(session))));
  }
  return absl::OkStatus();
}

absl::Status StartPipeline(ModelSession& session, const PipelineOptions& options,
                           JobProgress& progress) {
  const absl::Duration start = progress.Now();
  MT_RETURN_IF_ERROR(
      session.StartPipeline(options, progress.FollowUntilStop(TrainPhase::kPreparingMemory)));
  const StepPipeline::HostActivations host = session.pipeline().host_activations();
  if (host.size_bytes == 0) {
    return absl::OkStatus();
  }
  const std::string took = absl::StrCat(" in ", SecondsText(progress.Now() - start));
  const std::string pinned = host.pinned_bytes > 0 ? ", pinned" : ", prepared";
  progress.Log(absl::StrCat(
      "host memory for activations: ",
      host.refusal.ok()
          ? absl::StrCat(FormatBytes(host.size_bytes), pinned, took)
          : RefusalText({.what = "for them",
                         .pinned_bytes = host.pinned_bytes,
                         .size_bytes = host.size_bytes,
                         .refusal = host.refusal},
                        took,
                        session.pipeline().uses_slabs() ? "through slabs"
                                                        : "as the driver does it, more slowly")));
  return absl::OkStatus();
}

}  // namespace megatrain
