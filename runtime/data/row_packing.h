#ifndef RUNTIME_DATA_ROW_PACKING_H_
#define RUNTIME_DATA_ROW_PACKING_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace megatrain {

// Groups documents, in their order, into rows of at most `max_tokens`: a document goes into the
// open row when it fits there as a whole, else it opens the next one. Returns the index into
// `documents` at which each row starts, and documents.size() at the end. Requires that each
// document alone fits.
std::vector<int64_t> PackRows(std::span<const int64_t> documents,
                              const std::function<int64_t(int64_t)>& document_tokens,
                              int64_t max_tokens);

}  // namespace megatrain

#endif  // RUNTIME_DATA_ROW_PACKING_H_
