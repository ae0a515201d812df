#ifndef RUNTIME_HOSTSTORE_POPULATE_PAGES_H_
#define RUNTIME_HOSTSTORE_POPULATE_PAGES_H_

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "runtime/hoststore/page_arena.h"

namespace megatrain {

// Gives all pages of the arenas, readable and writable now, their memory, with that many threads;
// one thread leaves seven eighths of a machine's memory bandwidth unused. Returns the bytes.
// `progress` is called with the bytes done and all, by one thread at a time.
absl::StatusOr<int64_t> PopulatePages(std::span<PageArena* const> arenas, int threads,
                                      const std::function<void(int64_t, int64_t)>& progress);

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_POPULATE_PAGES_H_
