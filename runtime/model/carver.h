#ifndef RUNTIME_MODEL_CARVER_H_
#define RUNTIME_MODEL_CARVER_H_

#include <algorithm>
#include <cstdint>

namespace megatrain {

// Hands out memory from `base` on, piece after piece, each aligned to `alignment_bytes`; `base`
// itself to 64. Without a base it only counts.
class Carver {
 public:
  static constexpr int64_t kBaseAlignmentBytes = 64;

  explicit Carver(void* base, int64_t alignment_bytes = 256)
      : alignment_bytes_(alignment_bytes),
        base_(RoundUp(static_cast<int64_t>(reinterpret_cast<uintptr_t>(base)))) {}

  void* Take(int64_t size_bytes) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): without a base there is no object to point into
    void* const piece = reinterpret_cast<void*>(base_ + next_);
    next_ += RoundUp(size_bytes);
    most_ = std::max(most_, next_);
    return piece;
  }

  template <typename Element>
  Element* TakeArray(int64_t count) {
    return static_cast<Element*>(Take(count * static_cast<int64_t>(sizeof(Element))));
  }

  // Where the next piece begins. Going back there hands out once more what lies past it.
  int64_t next() const { return next_; }
  void GoBack(int64_t next) { next_ = next; }

  // Memory that `base` must have for all pieces, wherever it lies.
  int64_t size_bytes() const { return most_ + alignment_bytes_ - kBaseAlignmentBytes; }

 private:
  int64_t RoundUp(int64_t bytes) const {
    return (bytes + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
  }

  const int64_t alignment_bytes_;
  const int64_t base_;
  int64_t next_ = 0;
  int64_t most_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CARVER_H_
