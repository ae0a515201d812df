#include "runtime/data/row_packing.h"

#include "runtime/base/check.h"

namespace megatrain {

std::vector<int64_t> PackRows(std::span<const int64_t> documents,
                              const std::function<int64_t(int64_t)>& document_tokens,
                              int64_t max_tokens) {
  std::vector<int64_t> starts;
  int64_t row_tokens = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    const int64_t tokens = document_tokens(documents[i]);
    MT_CHECK(tokens <= max_tokens);
    if (starts.empty() || row_tokens + tokens > max_tokens) {
      starts.push_back(static_cast<int64_t>(i));
      row_tokens = 0;
    }
    row_tokens += tokens;
  }
  starts.push_back(static_cast<int64_t>(documents.size()));
  return starts;
}

}  // namespace megatrain
