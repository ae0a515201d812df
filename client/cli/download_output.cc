#include "client/cli/download_output.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

constexpr absl::Duration kCalm = absl::Seconds(2);  // before it, a speed says nothing

}  // namespace

DownloadPrinter::DownloadPrinter(Session& session)
    : session_(session), line_(session), begin_(session.environment().clock.MonotonicNow()) {}

void DownloadPrinter::OnReceived(int64_t received_bytes, int64_t size_bytes) {
  std::string line =
      absl::StrCat("fetching: ", FormatBytes(received_bytes), " of ", FormatBytes(size_bytes), ", ",
                   received_bytes * 100 / size_bytes, " %");
  const absl::Duration span = session_.environment().clock.MonotonicNow() - begin_;
  const double speed =
      static_cast<double>(received_bytes - begin_bytes_) / absl::ToDoubleSeconds(span);
  if (span > kCalm && speed > 0) {
    const double left = static_cast<double>(size_bytes - received_bytes) / speed;
    absl::StrAppend(&line, ", ", FormatBytes(static_cast<int64_t>(speed)), "/s, ",
                    FormatSpan(absl::Seconds(left)), " left");
  }
  line_.Redraw(line);
}

void DownloadPrinter::OnResumed(int64_t received_bytes) {
  begin_ = session_.environment().clock.MonotonicNow();
  begin_bytes_ = received_bytes;
  Clear();
  session_.err() << "goes on at " << FormatBytes(received_bytes) << std::endl;
}

void DownloadPrinter::OnDamaged(const std::string& path) {
  Clear();
  session_.err() << Printable(path) << " is damaged: it is fetched again" << std::endl;
}

}  // namespace megatrain
