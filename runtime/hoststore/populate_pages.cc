#include "runtime/hoststore/populate_pages.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kPieceBytes = int64_t{64} << 20;

struct Piece {
  PageArena* arena;
  int part;
  int64_t offset_bytes;
  int64_t size_bytes;
};

std::vector<Piece> Pieces(std::span<PageArena* const> arenas) {
  std::vector<Piece> pieces;
  for (PageArena* arena : arenas) {
    for (int part = 0; part < arena->part_count(); ++part) {
      const int64_t end = arena->owns(part) ? arena->size_bytes(part) : 0;
      for (int64_t offset = 0; offset < end; offset += kPieceBytes) {
        pieces.push_back({arena, part, offset, std::min(kPieceBytes, end - offset)});
      }
    }
  }
  return pieces;
}

// What the threads share.
class Populating {
 public:
  Populating(std::vector<Piece> pieces, const ByteProgress& progress)
      : pieces_(std::move(pieces)), progress_(progress) {
    for (const Piece& piece : pieces_) {
      all_bytes_ += piece.size_bytes;
    }
  }

  int64_t all_bytes() const { return all_bytes_; }

  // One thread's part: pieces until there are none, or one fails.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (const Piece* piece = Next()) {
      const absl::Status status =
          piece->arena->Populate(piece->part, piece->offset_bytes, piece->size_bytes);
      MutexLock lock(&mutex_);
      status_.Update(status);
      if (status_.ok()) {
        done_bytes_ += piece->size_bytes;
        status_.Update(TellProgress(progress_, done_bytes_, all_bytes_));
      }
    }
  }

  absl::Status status() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  const Piece* Next() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return status_.ok() && next_ < pieces_.size() ? &pieces_[next_++] : nullptr;
  }

  const std::vector<Piece> pieces_;
  const ByteProgress& progress_;
  int64_t all_bytes_ = 0;
  Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<int64_t> PopulatePages(std::span<PageArena* const> arenas, int threads,
                                      const ByteProgress& progress) {
  MT_CHECK(threads >= 1);
  Populating populating(Pieces(arenas), progress);
  std::vector<std::thread> others;
  // Of less than a piece a thread makes nothing faster.
  const int64_t useful_threads = std::min<int64_t>(threads, populating.all_bytes() / kPieceBytes);
  for (int64_t i = 1; i < useful_threads; ++i) {
    others.emplace_back([&populating] { populating.Run(); });
  }
  populating.Run();
  for (std::thread& thread : others) {
    thread.join();
  }
  MT_RETURN_IF_ERROR(populating.status());
  return populating.all_bytes();
}

}  // namespace megatrain
