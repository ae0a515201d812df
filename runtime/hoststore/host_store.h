#ifndef RUNTIME_HOSTSTORE_HOST_STORE_H_
#define RUNTIME_HOSTSTORE_HOST_STORE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/mutex.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/page_arena.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/hoststore/pin_arena.h"

namespace megatrain {

// All persistent training state of one model in host memory: a plane each for the master weights'
// upper and lower halves, the two moments and the gradient. Every plane is one arena; unit u lies
// in it by its UnitLayout, from a page boundary on. All zero at first. Never copied by fork and
// never in a core dump. Different units may be used by different threads at once; who uses one
// unit from two threads orders them. Pointers hold as long as the store.
class HostStore {
 public:
  struct Options {
    int gradient_bytes = 4;           // of an element: 4 is fp32, 2 is bf16
    std::vector<bool> gradients;      // by unit, whether it has memory for them; empty: all have
    bool protect_idle_units = false;  // no page can be read or written outside an Access

    // Above 0: only the first so many decoder layers have memory, and later ones are these in turn.
    // For measuring the speed of a model larger than memory; nothing can be learnt so.
    int fold_layers = 0;
  };

  enum class Plane { kHi, kLo, kMoment1, kMoment2, kGradient };

  // RESOURCE_EXHAUSTED when the system has no room for an arena, INVALID_ARGUMENT when layers that
  // are to share memory differ in size.
  static absl::StatusOr<std::unique_ptr<HostStore>> Create(const ModelLayout& layout,
                                                           Options options);

  // What the plane of gradients takes of that, among options that differ in nothing else.
  static int64_t GradientBytes(const ModelLayout& layout, const Options& options);

  // What Create takes, by kind of plane: weights_hi, weights_lo, adam_m, adam_v, gradients.
  static std::vector<std::pair<std::string, int64_t>> Bytes(const ModelLayout& layout,
                                                            Options options);

  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Gives all pages their memory now, with up to that many threads, instead of at first touch:
  // much the faster, and what does not fit shows here. Before anybody uses the store.
  // RESOURCE_EXHAUSTED when memory ends.
  struct PopulateReport {
    int64_t size_bytes;
    int64_t huge_page_bytes;  // of these, in huge pages
  };
  absl::StatusOr<PopulateReport> Populate(int threads, const ByteProgress& progress);

  // Pins whole planes, in that order, until one call is refused; what was pinned until then stays
  // so. In calls of at most `chunk_bytes`, or one unit; no unit is divided; `progress` hears of
  // each. Once; `pinner` outlives the store. Not with protect_idle_units. The only error is that of
  // `progress`.
  struct PinReport {
    int64_t requested_bytes = 0;
    int64_t pinned_bytes = 0;
    absl::Status refusal;
  };
  absl::StatusOr<PinReport> Pin(PagePinner& pinner, std::span<const Plane> planes,
                                const ByteProgress& progress, int64_t chunk_bytes = kPinChunkBytes);

  // The first element of the unit in each plane, page-aligned.
  uint16_t* hi(int unit) { return static_cast<uint16_t*>(At(Plane::kHi, unit)); }
  int16_t* lo(int unit) { return static_cast<int16_t*>(At(Plane::kLo, unit)); }
  float* moment1(int unit) { return static_cast<float*>(At(Plane::kMoment1, unit)); }
  float* moment2(int unit) { return static_cast<float*>(At(Plane::kMoment2, unit)); }
  void* gradient(int unit) { return At(Plane::kGradient, unit); }  // float or bf16; see below

  // Whether the unit has memory for its gradient; else nobody asks where that is.
  bool has_gradient(int unit) const {
    return arenas_[static_cast<int>(Plane::kGradient)]->size_bytes(unit) > 0;
  }

  // Whether the memory at an address is pinned; and why Pin did not pin all, OK when it did or was
  // not called.
  bool pins(const void* address) const { return pinned_.Hold(address); }
  const absl::Status& pin_refusal() const { return pin_refusal_; }

  // Whether the unit has memory of its own; with fold_layers some have not.
  bool owns(int unit) const { return arenas_.front()->owns(unit); }

  // Whether all of it is zero still: nobody has begun an Access.
  bool untouched() ABSL_LOCKS_EXCLUDED(mutex_);

  int gradient_bytes() const { return options_.gradient_bytes; }
  int unit_count() const { return unit_count_; }

  // While at least one Access of a unit lives, its pages are readable and writable. Without
  // protect_idle_units they always are, but callers hold one all the same. May outlive no store.
  class Access {
   public:
    Access(Access&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)), unit_(other.unit_) {}
    Access& operator=(Access&&) = delete;
    ~Access() {
      if (store_ != nullptr) {
        store_->EndAccess(unit_);
      }
    }

   private:
    friend class HostStore;
    Access(HostStore* store, int unit) : store_(store), unit_(unit) {}

    HostStore* store_;
    const int unit_;
  };
  [[nodiscard]] Access BeginAccess(int unit) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr int kPlaneCount = 5;

  HostStore(int unit_count, Options options)
      : options_(std::move(options)), unit_count_(unit_count), access_counts_(unit_count, 0) {}

  Access OpenUnit(int unit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PageArena& arena(Plane plane) { return *arenas_[static_cast<int>(plane)]; }
  void* At(Plane plane, int unit);
  void EndAccess(int unit) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetProtection(int unit, int protection);

  const Options options_;
  const int unit_count_;
  std::array<std::unique_ptr<PageArena>, kPlaneCount> arenas_;  // a part a unit
  PagePinner* pinner_ = nullptr;                                // of `pinned_`
  PinnedRanges pinned_;
  absl::Status pin_refusal_;
  Mutex mutex_;
  std::vector<int> access_counts_ ABSL_GUARDED_BY(mutex_);  // of units that have memory
  bool untouched_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_HOST_STORE_H_
