#include "runtime/planner/machine_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr JsonLimits kLimits = {.size_bytes = int64_t{64} << 10, .depth = 4};
constexpr int64_t kMostBytes = int64_t{1} << 52;
constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr size_t kMostNameBytes = 200;

struct Speed {
  const char* key;
  double MachineSpeeds::* value;
};

// Times of steps stay finite numbers within these.
constexpr double kLeastSpeed = 1e6;
constexpr double kHighestSpeed = 1e18;

constexpr std::array<Speed, 10> kSpeeds = {{
    {"matmul_flops", &MachineSpeeds::matmul_flops},
    {"float32_flops", &MachineSpeeds::float32_flops},
    {"attention_flops", &MachineSpeeds::attention_flops},
    {"device_bytes", &MachineSpeeds::device_bytes},
    {"bus_up_bytes", &MachineSpeeds::bus_up_bytes},
    {"bus_down_bytes", &MachineSpeeds::bus_down_bytes},
    {"bus_both_bytes", &MachineSpeeds::bus_both_bytes},
    {"slab_bytes", &MachineSpeeds::slab_bytes},
    {"host_memory_bytes", &MachineSpeeds::host_memory_bytes},
    {"host_updates", &MachineSpeeds::host_updates},
}};

struct Size {
  const char* key;
  int64_t MachineProfile::* value;
};

constexpr std::array<Size, 5> kSizes = {{
    {"host_available_bytes", &MachineProfile::host_available_bytes},
    {"device_memory_bytes", &MachineProfile::device_memory_bytes},
    {"device_overhead_bytes", &MachineProfile::device_overhead_bytes},
    {"disk_write_bytes_per_second", &MachineProfile::disk_write_bytes_per_second},
    {"engine_baseline_bytes", &MachineProfile::engine_baseline_bytes},
}};

// It is told in a line of its own, which it must not end.
bool HasControlCharacters(std::string_view text) {
  return std::any_of(text.begin(), text.end(), absl::ascii_iscntrl);
}

absl::Status CheckKeys(const nlohmann::json& object, std::set<std::string> known,
                       const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (known.count(key) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("machine: unknown key ", where, key));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<MachineSpeeds> ParseSpeeds(const nlohmann::json& object) {
  std::set<std::string> known;
  JsonFields fields(object, "machine: speeds.");
  MachineSpeeds speeds;
  for (const Speed& speed : kSpeeds) {
    known.insert(speed.key);
    if (speed.value != &MachineSpeeds::slab_bytes) {
      speeds.*speed.value = fields.Positive(speed.key);
    }
  }
  // Older files lack it; half of it was measured where a bus is faster than the host's threads.
  speeds.slab_bytes = fields.PositiveOr("slab_bytes", speeds.bus_both_bytes / 2);
  MT_RETURN_IF_ERROR(fields.status());
  for (const Speed& speed : kSpeeds) {
    if (speeds.*speed.value < kLeastSpeed || speeds.*speed.value > kHighestSpeed) {
      return absl::InvalidArgumentError(absl::StrCat("machine: speeds.", speed.key, " is ",
                                                     speeds.*speed.value, ", which is not from ",
                                                     kLeastSpeed, " to ", kHighestSpeed));
    }
  }
  MT_RETURN_IF_ERROR(CheckKeys(object, std::move(known), "speeds."));
  return speeds;
}

// An H200 SXM with 139.8 GiB, of which a driver's context, libraries and a reserve take 2 GiB; of
// its host 5 % are kept. Speeds as in docs/results.
Machine H200() {
  return {.name = "H200 SXM, host with 1536 GiB and 16 cores for the optimizer",
          .profile = {.backend = Backend::kCuda,
                      .host_available_bytes = 1536 * kGibibyte / 100 * 95,
                      .device_memory_bytes = 138 * kGibibyte,
                      .device_overhead_bytes = 2 * kGibibyte,
                      .engine_baseline_bytes = 2 * kGibibyte,
                      .speeds = {}}};
}

// 71 TFLOP/s of bf16 products with fp32 sums and 936 GB/s by the data sheet, PCIe 4.0 x16, two
// channels of DDR4-3200: not measured.
Machine Rtx3090() {
  return {.name = "RTX 3090 24 GiB, host with 128 GiB in two channels of DDR4",
          .profile = {.backend = Backend::kCuda,
                      .host_available_bytes = 128 * kGibibyte / 100 * 92,
                      .device_memory_bytes = 22 * kGibibyte,
                      .device_overhead_bytes = 2 * kGibibyte,
                      .engine_baseline_bytes = 2 * kGibibyte,
                      .speeds = {.matmul_flops = 60e12,
                                 .float32_flops = 22e12,
                                 .attention_flops = 40e12,
                                 .device_bytes = 0.82e12,
                                 .bus_up_bytes = 25e9,
                                 .bus_down_bytes = 25e9,
                                 .bus_both_bytes = 21e9,
                                 .slab_bytes = 12e9,
                                 .host_memory_bytes = 42e9,
                                 .host_updates = 1.5e9}},
          .has_kernels = false};
}

// 312 TFLOP/s and 1,935 GB/s by the data sheet at 300 W, PCIe 4.0 x16, eight channels of DDR4-3200:
// not measured.
Machine A100Pcie() {
  return {.name = "A100 PCIe 80 GiB, host with 512 GiB in eight channels of DDR4",
          .profile = {.backend = Backend::kCuda,
                      .host_available_bytes = 512 * kGibibyte / 100 * 95,
                      .device_memory_bytes = 77 * kGibibyte,
                      .device_overhead_bytes = 2 * kGibibyte,
                      .engine_baseline_bytes = 2 * kGibibyte,
                      .speeds = {.matmul_flops = 230e12,
                                 .float32_flops = 17e12,
                                 .attention_flops = 150e12,
                                 .device_bytes = 1.7e12,
                                 .bus_up_bytes = 25e9,
                                 .bus_down_bytes = 25e9,
                                 .bus_both_bytes = 22e9,
                                 .slab_bytes = 20e9,
                                 .host_memory_bytes = 140e9,
                                 .host_updates = 4.5e9}},
          .has_kernels = false};
}

using MachineMaker = Machine (*)();
constexpr std::array<std::pair<std::string_view, MachineMaker>, 3> kMachines = {
    {{"h200-1536g", H200}, {"rtx3090-128g", Rtx3090}, {"a100-pcie", A100Pcie}}};

}  // namespace

std::string ToJson(const Machine& machine) {
  nlohmann::ordered_json json = {{"name", machine.name},
                                 {"backend", std::string(BackendName(machine.profile.backend))}};
  for (const Size& size : kSizes) {
    if (const int64_t bytes = machine.profile.*size.value; bytes > 0) {
      json[size.key] = bytes;  // absent: not known
    }
  }
  for (const Speed& speed : kSpeeds) {
    json["speeds"][speed.key] = machine.profile.speeds.*speed.value;
  }
  return json.dump(/*indent=*/2, ' ', /*ensure_ascii=*/false,
                   nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Machine> ParseMachine(std::string_view json) {
  MT_ASSIGN_OR_RETURN(const nlohmann::json object, ParseBoundedJson(json, kLimits));
  if (!object.is_object() || !object.contains("speeds") || !object["speeds"].is_object()) {
    return absl::InvalidArgumentError("machine: not an object with an object \"speeds\"");
  }
  std::set<std::string> known = {"name", "backend", "speeds"};
  JsonFields fields(object, "machine: ");
  Machine machine{.name = fields.TextOr("name", "a machine without a name"), .profile = {}};
  if (machine.name.size() > kMostNameBytes || HasControlCharacters(machine.name)) {
    fields.Refuse("name", absl::StrCat("must be one line of at most ", kMostNameBytes, " bytes"));
  }
  const std::string backend = fields.TextOr("backend", "cuda");
  if (backend != "cpu" && backend != "cuda") {
    fields.Refuse("backend", "must be cpu or cuda");
  }
  machine.profile.backend = backend == "cpu" ? Backend::kCpu : Backend::kCuda;
  for (const Size& size : kSizes) {
    known.insert(size.key);
    const bool is_unknown = object.contains(size.key) && object[size.key] == 0;
    machine.profile.*size.value = is_unknown ? 0 : fields.NumberOr(size.key, 0, 1, kMostBytes);
  }
  MT_RETURN_IF_ERROR(fields.status());
  MT_RETURN_IF_ERROR(CheckKeys(object, std::move(known), ""));
  MT_ASSIGN_OR_RETURN(machine.profile.speeds, ParseSpeeds(object["speeds"]));
  return machine;
}

std::vector<std::string> MachineNames() {
  std::vector<std::string> names;
  names.reserve(kMachines.size());
  for (const auto& [name, make] : kMachines) {
    names.emplace_back(name);
  }
  return names;
}

absl::StatusOr<Machine> MachineByName(std::string_view name) {
  std::string known;
  for (const auto& [known_name, make] : kMachines) {
    if (known_name == name) {
      return make();
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(known_name));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no machine \"", std::string(name.substr(0, kMostNameBytes)), "\": there are ", known));
}

}  // namespace megatrain
