#ifndef RUNTIME_HOSTSTORE_HOST_STORE_H_
#define RUNTIME_HOSTSTORE_HOST_STORE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/config/model_layout.h"

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
    bool protect_idle_units = false;  // no page can be read or written outside an Access
  };

  // RESOURCE_EXHAUSTED when the system has no room for an arena.
  static absl::StatusOr<std::unique_ptr<HostStore>> Create(const ModelLayout& layout,
                                                           Options options);

  // What Create takes, by kind of plane: weights_hi, weights_lo, adam_m, adam_v, gradients.
  static std::vector<std::pair<std::string, int64_t>> Bytes(const ModelLayout& layout,
                                                            Options options);

  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // The first element of the unit in each plane, page-aligned.
  uint16_t* hi(int unit) { return static_cast<uint16_t*>(At(kHi, unit)); }
  int16_t* lo(int unit) { return static_cast<int16_t*>(At(kLo, unit)); }
  float* moment1(int unit) { return static_cast<float*>(At(kMoment1, unit)); }
  float* moment2(int unit) { return static_cast<float*>(At(kMoment2, unit)); }
  void* gradient(int unit) { return At(kGradient, unit); }  // float or bf16

  int gradient_bytes() const { return options_.gradient_bytes; }
  int unit_count() const { return static_cast<int>(element_counts_.size()); }

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
  enum Plane { kHi, kLo, kMoment1, kMoment2, kGradient, kPlaneCount };

  struct Arena {
    char* data = nullptr;
    int64_t size_bytes = 0;
    int element_bytes = 0;
    std::vector<int64_t> unit_offsets;  // in bytes
  };

  HostStore(const ModelLayout& layout, Options options);

  absl::Status Map(Plane plane);
  void* At(Plane plane, int unit);
  void EndAccess(int unit) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetProtection(int unit, int protection);

  const Options options_;
  std::vector<int64_t> element_counts_;  // of each unit
  std::array<Arena, kPlaneCount> arenas_;
  Mutex mutex_;
  std::vector<int> access_counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_HOST_STORE_H_
