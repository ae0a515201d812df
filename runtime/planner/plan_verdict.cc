#include "runtime/planner/plan_verdict.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/round_up.h"

namespace megatrain {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// The largest value in [1, limit) that `holds`, which it does for all below one that it does for; 0
// when there is none.
int64_t LargestThat(int64_t limit, const std::function<bool(int64_t)>& holds) {
  int64_t low = 0;
  int64_t high = limit;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

int64_t MebibytesUp(int64_t size_bytes) { return RoundUp(size_bytes, kMebibyte) / kMebibyte; }

// Tokens of the longest row that the shape allows for.
int64_t MaxRowTokens(const JobShape& shape) {
  return shape.packing || shape.longest_row_tokens == 0
             ? shape.max_sequence_length
             : std::min(shape.longest_row_tokens, shape.max_sequence_length);
}

void AddSmallerSteps(const VerdictRequest& request, std::vector<std::string>& ways) {
  JobShape shorter = request.shape;
  const int64_t tokens = LargestThat(MaxRowTokens(request.shape), [&](int64_t value) {
    shorter.max_sequence_length = value;
    return request.fits(shorter, request.machine);
  });
  JobShape fewer = request.shape;
  const int64_t rows = LargestThat(request.shape.batch_rows, [&](int64_t value) {
    fewer.batch_rows = value;
    return request.fits(fewer, request.machine);
  });
  if (tokens >= 2) {
    ways.push_back(absl::StrCat("train.max_sequence_length of at most ", tokens));
  }
  if (rows >= 1) {
    ways.push_back(absl::StrCat("train.batch_rows of at most ", rows));
  }
}

// The plan takes the least of the device that its batch can.
void AddDeviceLimit(const VerdictRequest& request, std::vector<std::string>& ways) {
  if (request.shape.device_limit_bytes == 0) {
    return;
  }
  const int64_t mebibytes =
      MebibytesUp(request.plan.device_bytes + request.machine.device_overhead_bytes);
  JobShape larger = request.shape;
  larger.device_limit_bytes = mebibytes * kMebibyte;
  if (request.fits(larger, request.machine)) {
    ways.push_back(absl::StrCat("placement.hbm_limit of at least ", mebibytes, "MiB"));
  }
}

// A device may lack memory for what the host has no room for.
void AddHostMemory(const VerdictRequest& request, std::vector<std::string>& ways) {
  const int64_t available_bytes = request.plan.host_available_bytes;
  const auto fits_with = [&](int64_t more_mebibytes) {
    JobShape shape = request.shape;
    shape.host_limit_bytes = 0;
    MachineProfile machine = request.machine;
    machine.host_available_bytes = available_bytes + more_mebibytes * kMebibyte;
    return request.fits(shape, machine);
  };
  const int64_t most = MebibytesUp(request.plan.device_bytes);  // all of it
  if (!fits_with(most)) {
    return;
  }
  const int64_t more =
      LargestThat(most, [&](int64_t mebibytes) { return !fits_with(mebibytes); }) + 1;
  const int64_t enough_bytes = available_bytes + more * kMebibyte;
  if (request.shape.host_limit_bytes > 0 && enough_bytes <= request.machine.host_available_bytes) {
    ways.push_back(
        absl::StrCat("placement.host_limit of at least ", MebibytesUp(enough_bytes), "MiB"));
  } else {
    ways.push_back(absl::StrCat(FormatBytes(more * kMebibyte), " more of host memory"));
  }
}

// A model's state grows with its parameters; libraries and buffers do not.
std::string LargestModel(const VerdictRequest& request) {
  const Plan& plan = request.plan;
  int64_t fixed_bytes = 0;
  for (const MemoryItem& item : plan.host) {
    fixed_bytes += item.kind == "libraries" || item.kind == "io_buffers" ? item.size_bytes : 0;
  }
  const double per_parameter = static_cast<double>(plan.host_bytes - fixed_bytes) /
                               static_cast<double>(plan.parameter_count);
  const double largest =
      static_cast<double>(std::max<int64_t>(plan.host_available_bytes - fixed_bytes, 0)) /
      per_parameter;
  return absl::StrFormat(
      "the largest model of this kind for that host memory has about %.2f billion parameters, this "
      "one has %.2f billion",
      largest / 1e9, static_cast<double>(plan.parameter_count) / 1e9);
}

std::string WhatWouldFit(const VerdictRequest& request, bool host_is_short) {
  std::vector<std::string> ways;
  AddSmallerSteps(request, ways);
  const bool no_batch_fits = ways.empty();
  if (!host_is_short) {
    AddDeviceLimit(request, ways);
    AddHostMemory(request, ways);
  }
  return absl::StrCat(
      no_batch_fits ? "; no smaller batch fits" : "",
      !ways.empty() ? absl::StrCat("; it would fit with ", absl::StrJoin(ways, " or ")) : "",
      no_batch_fits && host_is_short ? absl::StrCat(": ", LargestModel(request)) : "");
}

std::string ListItems(const std::vector<MemoryItem>& items) {
  std::string text;
  for (const MemoryItem& item : items) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", item.kind, " ", FormatBytes(item.size_bytes));
  }
  return text;
}

std::string TextOfFit(const Plan& plan) {
  const int64_t kept_bytes =
      plan.device.back().kind == kKeptGradients ? plan.device.back().size_bytes : 0;
  return absl::StrCat(
      "fits: needs ", FormatBytes(plan.host_bytes), " of ", FormatBytes(plan.host_available_bytes),
      " host memory and ", FormatBytes(plan.device_bytes), " of ",
      FormatBytes(plan.device_available_bytes), " device memory",
      kept_bytes > 0 ? absl::StrCat("; of gradients ", FormatBytes(kept_bytes),
                                    " wait there, not on the host, until the norm is known")
                     : "");
}

// A limit on all that a job takes of a device counts what is not the plan's.
std::string TextOfOverhead(const VerdictRequest& request) {
  const MachineProfile& machine = request.machine;
  if (request.plan.device_available_bytes >= machine.device_memory_bytes ||
      machine.device_overhead_bytes == 0) {
    return "";
  }
  return absl::StrCat(" (of placement.hbm_limit, ", FormatBytes(request.shape.device_limit_bytes),
                      ", a context and libraries take ", FormatBytes(machine.device_overhead_bytes),
                      ")");
}

}  // namespace

std::string FitVerdict(const VerdictRequest& request) {
  const Plan& plan = request.plan;
  if (plan.fits) {
    return TextOfFit(plan);
  }
  const bool host_is_short = plan.host_bytes > plan.host_available_bytes;
  return absl::StrCat(
      "does not fit the ",
      host_is_short
          ? absl::StrCat("host memory: needs ", FormatBytes(plan.host_bytes), " (",
                         ListItems(plan.host), ") but ", FormatBytes(plan.host_available_bytes),
                         " can be used")
          : absl::StrCat("device memory: needs ", FormatBytes(plan.device_bytes), " (",
                         ListItems(plan.device), ") but ", FormatBytes(plan.device_available_bytes),
                         " can be used", TextOfOverhead(request)),
      WhatWouldFit(request, host_is_short));
}

}  // namespace megatrain
