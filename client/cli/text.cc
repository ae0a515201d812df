#include "client/cli/text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

// Three digits that count.
std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f", decimals, value);
}

std::string WithoutPrefix(const std::string& name, absl::string_view prefix) {
  return absl::StartsWith(name, prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) {
    return absl::StrCat(bytes, " B");
  }
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(ThreeDigits(value), " ", kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  constexpr std::array<const char*, 5> kUnits = {"", "K", "M", "B", "T"};
  if (count < 10'000) {
    return absl::StrCat(count);
  }
  double value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f%s", value >= 99.95 ? 1 : 2, value, kUnits[unit]);
}

std::string FormatSpan(absl::Duration span) {
  const double seconds = absl::ToDoubleSeconds(std::max(span, absl::ZeroDuration()));
  if (seconds < 9.95) {
    return absl::StrFormat("%.1f s", seconds);
  }
  const int64_t whole = std::llround(seconds);
  if (whole < 60) {
    return absl::StrCat(whole, " s");
  }
  if (whole < 3600) {
    return absl::StrCat(whole / 60, " min ", whole % 60, " s");
  }
  return absl::StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string FormatAge(const google::protobuf::Timestamp& time, absl::Time now) {
  if (time.seconds() == 0) {
    return "";
  }
  return FormatSpan(now - absl::FromUnixSeconds(time.seconds()));
}

std::string StateName(v1::JobState state) {
  return WithoutPrefix(v1::JobState_Name(state), "JOB_STATE_");
}

std::string StateName(v1::DatasetState state) {
  return WithoutPrefix(v1::DatasetState_Name(state), "DATASET_STATE_");
}

std::string StateName(v1::ModelState state) {
  return WithoutPrefix(v1::ModelState_Name(state), "MODEL_STATE_");
}

std::string TriggerName(v1::CheckpointTrigger trigger) {
  return WithoutPrefix(v1::CheckpointTrigger_Name(trigger), "CHECKPOINT_TRIGGER_");
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string FullName(std::string_view collection, std::string_view name) {
  const std::string prefix = absl::StrCat(std::string(collection), "/");
  return absl::StartsWith(std::string(name), prefix) ? std::string(name)
                                                     : absl::StrCat(prefix, std::string(name));
}

std::string ShortName(std::string_view full_name) {
  const size_t slash = full_name.find('/');
  return std::string(slash == std::string_view::npos ? full_name : full_name.substr(slash + 1));
}

std::string Sparkline(const std::vector<double>& values) {
  constexpr std::array<const char*, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty()) {
    return "";
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double range = *high - *low;
  std::string line;
  for (const double value : values) {
    // A flat line stands in the middle; what is not finite is the highest.
    const double height = range > 0 ? (value - *low) / range : 0.5;
    const double bar = std::isfinite(height) ? std::floor(height * 7.999) : 7;
    line += kBars[static_cast<size_t>(bar)];
  }
  return line;
}

int ColumnsOf(std::string_view utf8) {
  return static_cast<int>(std::count_if(utf8.begin(), utf8.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;  // not inside a character
  }));
}

std::string Printable(std::string_view text) {
  std::string result(text);
  for (char& byte : result) {
    const auto code = static_cast<unsigned char>(byte);
    if ((code < 0x20 && byte != '\n' && byte != '\t') || code == 0x7F) {
      byte = '?';
    }
  }
  return result;
}

}  // namespace megatrain
