#include "server/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace megatrain {
namespace {

prometheus::MetricFamily MakeFamily(const std::string& name, const std::string& help,
                                    prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  metric.counter.value = value;
  return {name, help, type, {metric}};
}

// Fields of /proc/self/stat from the third on, counted as proc(5) does.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> fields(3);  // 0 does not exist; the name may hold blanks
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  for (std::string field; rest >> field;) {
    fields.push_back(field);
  }
  return fields;
}

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    if (double seconds = 0; key == "btime" && file >> seconds) {
      return seconds;
    }
  }
  return 0;
}

int OpenFileCount() {
  int count = -3;  // ".", ".." and the folder itself
  if (DIR* folder = opendir("/proc/self/fd"); folder != nullptr) {
    while (readdir(folder) != nullptr) {
      ++count;
    }
    closedir(folder);
  }
  return count < 0 ? 0 : count;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  const std::vector<std::string> fields = StatFields();
  if (fields.size() < 25) {
    return {};
  }
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double cpu_seconds = (std::stod(fields[14]) + std::stod(fields[15])) / ticks;
  const double start_seconds = BootTimeSeconds() + std::stod(fields[22]) / ticks;
  const double resident_bytes = std::stod(fields[24]) * static_cast<double>(sysconf(_SC_PAGESIZE));
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  return {
      MakeFamily("process_cpu_seconds_total", "User and system CPU time", MetricType::Counter,
                 cpu_seconds),
      MakeFamily("process_start_time_seconds", "Start of the process, Unix time", MetricType::Gauge,
                 start_seconds),
      MakeFamily("process_resident_memory_bytes", "Resident memory", MetricType::Gauge,
                 resident_bytes),
      MakeFamily("process_open_fds", "Open files", MetricType::Gauge, OpenFileCount()),
      MakeFamily("process_max_fds", "Files that may be open", MetricType::Gauge,
                 static_cast<double>(files.rlim_cur)),
  };
}

}  // namespace megatrain
