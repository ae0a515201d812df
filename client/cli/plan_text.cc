#include "client/cli/plan_text.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

using MemoryItems = google::protobuf::RepeatedPtrField<v1::MemoryItem>;

// What names of the API mean; a name that is not known stands for itself.
std::string InWords(const std::string& name) {
  static const auto& words = *new std::map<std::string, std::string>{
      {"weights_hi", "upper halves of the weights (what the bf16 model is)"},
      {"weights_lo", "lower halves of the weights (with the upper ones exact fp32)"},
      {"adam_m", "AdamW's first moments, fp32"},
      {"adam_v", "AdamW's second moments, fp32"},
      {"libraries", "the engine and its libraries"},
      {"io_buffers", "buffers for files"},
      {"data", "the order of the data's rows"},
      {"device_arena", "what a GPU would hold (the table below)"},
      {"step_tables", "results of steps, and tables on their way to a GPU"},
      {"stashed_activations", "activations that wait for their backward"},
      {"pinned_slabs", "slabs for copies to and from memory that is not pinned"},
      {"states", "AdamW's state of units that are updated there"},
      {"workspace", "scratch memory of kernels"},
      {"kept_gradients", "gradients that wait there, not on the host, for the norm of all"},
      {"optimizer_states", "optimizer states"},
      {"boundaries", "inputs of layers"},
      {"device", "on the GPU"},
      {"pinned_host", "in pinned host memory"},
      {"pinned_host_once", "in pinned host memory, crossing the bus once a step"},
      {"pageable_host", "in host memory"},
      {"host", "on the processors"},
      {"bus", "on the GPU, passing over the bus"},
      {"device_and_pinned_host", "on the GPU in part, else in pinned host memory"},
      {"partly_pinned_host", "in part in pinned host memory, else computed again"},
      {"partly_device_and_pinned_host",
       "in part on the GPU and in pinned host memory, else computed again"},
      {"device_and_pageable_host", "on the GPU in part, else in host memory"},
      {"partly_pageable_host", "in part in host memory, else computed again"},
      {"partly_device_and_pageable_host",
       "in part on the GPU and in host memory, else computed again"},
      {"recomputed", "computed again in backward"},
      {"device_attention", "attention's output on the GPU, the rest computed again"},
      {"device_projections", "attention with its inputs on the GPU, the MLP computed again"},
      {"compute", "the GPU's arithmetic"},
      {"bus_up", "the bus to the GPU"},
      {"bus_down", "the bus from the GPU"},
      {"host_updates", "the optimizer on the processors"},
      {"device_updates", "the optimizer on the GPU"},
      {"bus_bandwidth", "the bus, both ways,"},
      {"device_bandwidth", "the GPU's memory bandwidth"},
      {"device_memory", "GPU memory"},
      {"host_memory", "host memory"}};
  const auto found = words.find(name);
  return found == words.end() ? name : found->second;
}

MemoryItems LargestFirst(MemoryItems items) {
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(b.size_bytes(), a.kind()) < std::make_tuple(a.size_bytes(), b.kind());
  });
  return items;
}

// "2.51 GiB of 20.3 GiB (adam_m 0.50 GiB, ...)", the largest kinds first.
std::string MemoryText(int64_t needed_bytes, int64_t available_bytes, const MemoryItems& items) {
  std::string kinds;
  for (const v1::MemoryItem& item : LargestFirst(items)) {
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

std::string VerdictText(const v1::Plan& plan) {
  return !plan.verdict().empty() ? plan.verdict() : plan.fits() ? "it fits" : "it does not fit";
}

void AddMemory(const std::string& title, int64_t needed_bytes, int64_t available_bytes,
               const MemoryItems& items, std::vector<std::string>& lines) {
  lines.push_back(
      absl::StrCat(title, FormatBytes(needed_bytes), " of ", FormatBytes(available_bytes)));
  for (const v1::MemoryItem& item : LargestFirst(items)) {
    if (item.size_bytes() > 0) {
      lines.push_back(
          absl::StrFormat("  %10s  %s", FormatBytes(item.size_bytes()), InWords(item.kind())));
    }
  }
}

// "weights: 1 on the GPU, 29 in pinned host memory".
void AddPlanes(const v1::Plan& plan, std::vector<std::string>& lines) {
  std::string plane;
  for (const v1::PlanePlacement& placement : plan.planes()) {
    if (placement.plane() != plane) {
      plane = placement.plane();
      const bool of_layers = plane == "boundaries" || plane == "activations";
      lines.push_back(absl::StrCat("  ", InWords(plane), of_layers ? ", by layer:" : ", by unit:"));
    } else {
      lines.back() += ",";
    }
    absl::StrAppend(&lines.back(), " ", placement.unit_count(), " ", InWords(placement.place()));
  }
}

void AddTime(const v1::Plan& plan, std::vector<std::string>& lines) {
  lines.push_back(absl::StrFormat("step:    about %.3g s, %.0f tokens a second; set by %s",
                                  plan.step_seconds(),
                                  static_cast<double>(plan.step_tokens()) / plan.step_seconds(),
                                  InWords(plan.binding_resource())));
  for (const v1::ResourceTime& time : plan.resources()) {
    if (time.busy_seconds() > 0) {
      lines.push_back(absl::StrFormat("  %6.3g s (%3.0f %%)  %s", time.busy_seconds(),
                                      100 * time.busy_seconds() / plan.step_seconds(),
                                      InWords(time.resource())));
    }
  }
}

void AddGains(const v1::Plan& plan, std::vector<std::string>& lines) {
  if (plan.fits() && plan.gains().empty()) {
    lines.push_back("more:    no more of any resource would make a step much shorter");
  }
  for (const v1::ResourceGain& gain : plan.gains()) {
    lines.push_back(absl::StrFormat("more:    %s %s: %.3g s less a step", InWords(gain.resource()),
                                    gain.amount(), gain.saved_seconds()));
  }
}

std::string CheckpointText(const v1::Plan& plan) {
  const std::string size = FormatBytes(plan.checkpoint_bytes());
  return plan.checkpoint_seconds() > 0
             ? absl::StrFormat(
                   "save:    %s a checkpoint, about %.3g s to the disk; training stands "
                   "still for about %.3g s",
                   size, plan.checkpoint_seconds(), plan.checkpoint_stall_seconds())
             : absl::StrCat("save:    ", size, " a checkpoint; the speed of the disk is not known");
}

}  // namespace

std::vector<std::string> ExplainedPlanLines(const v1::Plan& plan) {
  std::vector<std::string> lines = {absl::StrCat("work:    ", WorkText(plan))};
  if (!plan.machine().empty()) {
    lines.push_back(absl::StrCat("machine: ", Printable(plan.machine())));
  }
  if (plan.step_tokens() > 0) {
    lines.push_back(absl::StrCat("cut:     ", plan.step_tokens(),
                                 " tokens a step, in micro-batches of ",
                                 plan.micro_batch_tokens()));
  }
  AddMemory("host:    ", plan.host_bytes(), plan.host_available_bytes(), plan.host(), lines);
  AddMemory("device:  ", plan.device_bytes(), plan.device_available_bytes(), plan.device(), lines);
  if (!plan.planes().empty()) {
    lines.emplace_back("placed:");
    AddPlanes(plan, lines);
  }
  if (plan.step_seconds() > 0) {
    AddTime(plan, lines);
    AddGains(plan, lines);
  }
  if (plan.checkpoint_bytes() > 0) {
    lines.push_back(CheckpointText(plan));
  }
  lines.push_back(absl::StrCat("verdict: ", VerdictText(plan)));
  return lines;
}

std::vector<std::string> PlanLines(const v1::Plan& plan) {
  return {
      absl::StrCat("work:    ", WorkText(plan)),
      absl::StrCat("host:    ",
                   MemoryText(plan.host_bytes(), plan.host_available_bytes(), plan.host())),
      absl::StrCat("device:  ",
                   MemoryText(plan.device_bytes(), plan.device_available_bytes(), plan.device())),
      absl::StrCat("verdict: ", VerdictText(plan)),
  };
}

}  // namespace megatrain
