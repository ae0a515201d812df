#ifndef RUNTIME_HOSTSTORE_POPULATE_PAGES_H_
#define RUNTIME_HOSTSTORE_POPULATE_PAGES_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/hoststore/page_arena.h"

namespace megatrain {

// Gives all pages of the arenas, readable and writable now, their memory, with at most that many
// threads; one thread leaves seven eighths of a machine's memory bandwidth unused. Returns the
// bytes.
absl::StatusOr<int64_t> PopulatePages(std::span<PageArena* const> arenas, int threads,
                                      const ByteProgress& progress);

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_POPULATE_PAGES_H_
