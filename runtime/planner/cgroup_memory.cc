#include "runtime/planner/cgroup_memory.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/planner/proc_file.h"

namespace megatrain {
namespace {

// Version 1 writes "no limit" as the largest multiple of a page.
constexpr int64_t kNoLimitBytes = int64_t{1} << 62;

// How a version of control groups names its files.
struct Version {
  std::string_view file_system;
  std::vector<std::string_view> limit_files;
  std::string_view usage_file;
  std::string_view inactive_file_key;
};

const Version& Version1() {
  static const Version version{
      "cgroup", {"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file "};
  return version;
}

// memory.high throttles instead of killing: a job above it stands still, so it is a limit too.
const Version& Version2() {
  static const Version version{
      "cgroup2", {"memory.max", "memory.high"}, "memory.current", "inactive_file "};
  return version;
}

struct Mount {
  std::string_view shown_root;  // the part of the hierarchy that is mounted
  std::string_view folder;      // where
};

bool HasOption(std::string_view options, std::string_view wanted) {
  const std::vector<std::string_view> list = SplitNonEmpty(options, ',');
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

// A line of mountinfo: ID parent device root folder options [optional...] - type source options.
std::optional<Mount> FindMount(std::string_view mount_info, const Version& version) {
  for (const std::string_view line : SplitNonEmpty(mount_info, '\n')) {
    const std::vector<std::string_view> words = SplitNonEmpty(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4 || dash[1] != version.file_system) {
      continue;
    }
    if (version.file_system == "cgroup2" || HasOption(dash[3], "memory")) {
      return Mount{words[3], words[4]};
    }
  }
  return std::nullopt;
}

// The process's path in the hierarchy, from lines "ID:controllers:path"; version 2 has ID 0 and
// no controllers.
std::optional<std::string_view> FindGroup(std::string_view groups, const Version& version) {
  for (const std::string_view line : SplitNonEmpty(groups, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool matches = version.file_system == "cgroup2" ? line.starts_with("0::")
                                                          : HasOption(controllers, "memory");
    if (matches) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// The group's path below the mount. A container's mount shows only the part below its own group;
// a path outside of what is shown counts as the mount itself.
std::string_view PathBelowMount(std::string_view group, std::string_view shown_root) {
  if (shown_root == "/") {
    return group == "/" ? "" : group;
  }
  if (group.starts_with(shown_root)) {
    const std::string_view rest = group.substr(shown_root.size());
    return rest.empty() || rest.front() == '/' ? rest : "";
  }
  return "";
}

void TakeTighter(const std::string& folder, const Version& version,
                 std::optional<CgroupMemory>& tightest) {
  std::optional<int64_t> limit;
  for (const std::string_view name : version.limit_files) {
    const std::optional<std::string> text = ReadProcFile(folder + "/" + std::string(name));
    const std::optional<int64_t> value = text ? LeadingNumber(*text) : std::nullopt;
    if (value && *value < kNoLimitBytes) {
      limit = limit ? std::min(*limit, *value) : *value;
    }
  }
  const std::optional<std::string> usage_text =
      limit ? ReadProcFile(folder + "/" + std::string(version.usage_file)) : std::nullopt;
  const std::optional<int64_t> usage = usage_text ? LeadingNumber(*usage_text) : std::nullopt;
  if (!usage) {
    return;
  }
  const std::string stat = ReadProcFile(folder + "/memory.stat").value_or("");
  const int64_t inactive = NumberAfter(stat, version.inactive_file_key).value_or(0);
  const int64_t working_set = std::max<int64_t>(*usage - inactive, 0);
  const int64_t available = std::max<int64_t>(*limit - working_set, 0);
  if (!tightest || available < tightest->available_bytes) {
    tightest = CgroupMemory{available, *limit, folder};
  }
}

}  // namespace

std::optional<CgroupMemory> ReadCgroupMemory(const std::string& root) {
  const std::string mount_info = ReadProcFile(root + "/proc/self/mountinfo").value_or("");
  const std::string groups = ReadProcFile(root + "/proc/self/cgroup").value_or("");
  std::optional<CgroupMemory> tightest;
  for (const Version* version : {&Version1(), &Version2()}) {
    const std::optional<Mount> mount = FindMount(mount_info, *version);
    const std::optional<std::string_view> group = FindGroup(groups, *version);
    if (!mount || !group) {
      continue;
    }
    const std::string top = root + std::string(mount->folder);
    std::string below(PathBelowMount(*group, mount->shown_root));
    while (true) {
      TakeTighter(top + below, *version, tightest);
      if (below.empty()) {
        break;
      }
      below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
    }
  }
  return tightest;
}

}  // namespace megatrain
