#include "server/jobs/job_log.h"

#include <algorithm>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {

absl::Status JobLog::Append(const std::string& job_id, absl::Time time, std::string_view line) {
  std::string text = absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", time, absl::UTCTimeZone()), std::string(line));
  std::replace(text.begin(), text.end(), '\n', ' ');
  text += '\n';
  MT_RETURN_IF_ERROR(files_.MakeFolders(absl::StrCat(folder_, "/", job_id)));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      files_.OpenForWriting(Path(job_id), /*append=*/true));
  MT_RETURN_IF_ERROR(file->Append(text));
  return file->Close();
}

absl::StatusOr<std::string> JobLog::Read(const std::string& job_id, int64_t offset_bytes,
                                         int64_t limit_bytes) const {
  const std::string path = Path(job_id);
  const int64_t size_bytes = files_.Exists(path) ? files_.FileSize(path).value_or(0) : 0;
  if (offset_bytes < 0 || offset_bytes > size_bytes) {
    return WithReason(
        absl::OutOfRangeError(absl::StrCat("offset ", offset_bytes, " is not within the log of ",
                                           size_bytes, " bytes")),
        "OFFSET_OUT_OF_RANGE", {{"size_bytes", absl::StrCat(size_bytes)}});
  }
  std::string text(std::min(limit_bytes, size_bytes - offset_bytes), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(offset_bytes);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  // A line that is longer than the limit is cut: better than no progress.
  const size_t last_end = text.rfind('\n');
  if (last_end != std::string::npos) {
    text.resize(last_end + 1);
  } else if (static_cast<int64_t>(text.size()) < limit_bytes) {
    text.clear();
  }
  return text;
}

std::string JobLog::Path(const std::string& job_id) const {
  return absl::StrCat(folder_, "/", job_id, "/log");
}

}  // namespace megatrain
