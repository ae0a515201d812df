#include "client/cli/plan_text.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

// "2.51 GiB of 20.3 GiB (adam_m 0.50 GiB, ...)", the largest kinds first.
std::string MemoryText(int64_t needed_bytes, int64_t available_bytes,
                       const google::protobuf::RepeatedPtrField<v1::MemoryItem>& items) {
  std::vector<v1::MemoryItem> sorted(items.begin(), items.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(b.size_bytes(), a.kind()) < std::make_tuple(a.size_bytes(), b.kind());
  });
  std::string kinds;
  for (const v1::MemoryItem& item : sorted) {
    absl::StrAppend(&kinds, kinds.empty() ? "" : ", ", item.kind(), " ",
                    FormatBytes(item.size_bytes()));
  }
  return absl::StrCat(FormatBytes(needed_bytes), " of ", FormatBytes(available_bytes),
                      kinds.empty() ? "" : absl::StrCat(" (", kinds, ")"));
}

std::string WorkText(const v1::Plan& plan) {
  std::string text = absl::StrCat(FormatCount(plan.parameter_count()), " parameters");
  if (plan.active_parameter_count() > 0 && plan.active_parameter_count() < plan.parameter_count()) {
    absl::StrAppend(&text, " (", FormatCount(plan.active_parameter_count()), " active)");
  }
  if (plan.step_count() > 0) {
    absl::StrAppend(&text, ", ", plan.step_count(), " steps");
  }
  if (!plan.order().empty()) {
    absl::StrAppend(&text, ", order ", plan.order());
  }
  if (plan.weight_slot_count() > 0) {
    absl::StrAppend(&text, ", ", plan.weight_slot_count(), " weight slots");
  }
  return text;
}

}  // namespace

std::vector<std::string> PlanLines(const v1::Plan& plan) {
  const std::string verdict = !plan.verdict().empty() ? plan.verdict()
                              : plan.fits()           ? "it fits"
                                                      : "it does not fit";
  return {
      absl::StrCat("work:    ", WorkText(plan)),
      absl::StrCat("host:    ",
                   MemoryText(plan.host_bytes(), plan.host_available_bytes(), plan.host())),
      absl::StrCat("device:  ",
                   MemoryText(plan.device_bytes(), plan.device_available_bytes(), plan.device())),
      absl::StrCat("verdict: ", verdict),
  };
}

}  // namespace megatrain
