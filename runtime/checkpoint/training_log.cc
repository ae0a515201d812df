#include "runtime/checkpoint/training_log.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/manifest.h"

namespace megatrain {
namespace {

constexpr int64_t kFieldCount = 7;
static_assert(kLogEntryBytes == kFieldCount * sizeof(int64_t));
static_assert(std::endian::native == std::endian::little);

using Fields = std::array<int64_t, kFieldCount>;

Fields FieldsOf(const LogEntry& entry) {
  return {static_cast<int64_t>(entry.kind),
          entry.step,
          std::bit_cast<int64_t>(entry.loss),
          std::bit_cast<int64_t>(entry.gradient_norm),
          std::bit_cast<int64_t>(entry.learning_rate),
          entry.token_count,
          entry.loss_token_count};
}

LogEntry EntryOf(const Fields& fields) {
  return {.kind = static_cast<LogEntry::Kind>(fields[0]),
          .step = fields[1],
          .loss = std::bit_cast<double>(fields[2]),
          .gradient_norm = std::bit_cast<double>(fields[3]),
          .learning_rate = std::bit_cast<double>(fields[4]),
          .token_count = fields[5],
          .loss_token_count = fields[6]};
}

bool IsEntry(const Fields& fields) {
  return fields[0] >= static_cast<int64_t>(LogEntry::Kind::kStep) &&
         fields[0] <= static_cast<int64_t>(LogEntry::Kind::kEvaluation);
}

absl::Status Damaged(const std::string& path, const char* how) {
  return absl::DataLossError(absl::StrCat(path, ": is damaged: ", how));
}

}  // namespace

void AddToLog(const LogEntry& entry, TrainingLog& log) {
  log.push_back(entry);
  if (static_cast<int64_t>(log.size()) > kMaxLogEntries) {
    log.pop_front();
  }
}

std::string SerializeTrainingLog(const TrainingLog& log) {
  std::string bytes;
  bytes.reserve(log.size() * kLogEntryBytes);
  for (const LogEntry& entry : log) {
    const Fields fields = FieldsOf(entry);
    bytes.append(reinterpret_cast<const char*>(fields.data()), kLogEntryBytes);
  }
  return bytes;
}

absl::StatusOr<TrainingLog> ReadTrainingLog(const Checkpoint& checkpoint, FileSystem& files) {
  const auto& known = checkpoint.manifest.files;
  const auto file = std::find_if(known.begin(), known.end(), [](const CheckpointFile& each) {
    return each.name == kTrainingLogName;
  });
  if (file == known.end()) {
    return TrainingLog();
  }
  const std::string path = absl::StrCat(checkpoint.path, "/", kTrainingLogName);
  MT_ASSIGN_OR_RETURN(const std::string bytes,
                      files.ReadFile(path, kMaxLogEntries * kLogEntryBytes));
  if (Crc32c(bytes) != file->crc32c) {
    return Damaged(path, "it does not have the checksum that the manifest gives");
  }
  if (bytes.size() % kLogEntryBytes != 0) {
    return Damaged(path, "it ends within an entry");
  }
  TrainingLog log;
  for (size_t at = 0; at < bytes.size(); at += kLogEntryBytes) {
    Fields fields;
    std::memcpy(fields.data(), bytes.data() + at, kLogEntryBytes);
    if (!IsEntry(fields)) {
      return Damaged(path, "it holds what is neither a step nor an evaluation");
    }
    log.push_back(EntryOf(fields));
  }
  return log;
}

}  // namespace megatrain
