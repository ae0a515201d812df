#include "client/cli/upload_output.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/text.h"

namespace megatrain {

void UploadPrinter::OnHashed(int64_t hashed_bytes) {
  line_.Redraw(absl::StrCat("reading: ", FormatBytes(hashed_bytes)));
}

void UploadPrinter::OnKnown() {
  Clear();
  session_.err() << "already there: nothing to send" << std::endl;
}

void UploadPrinter::OnSent(int64_t sent_bytes, int64_t size_bytes) {
  line_.Redraw(absl::StrCat("sending: ", FormatBytes(sent_bytes), " of ", FormatBytes(size_bytes),
                            ", ", sent_bytes * 100 / size_bytes, " %"));
}

void UploadPrinter::OnResumed(int64_t offset_bytes) {
  Clear();
  session_.err() << "goes on at " << FormatBytes(offset_bytes) << std::endl;
}

}  // namespace megatrain
