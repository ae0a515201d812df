#ifndef RUNTIME_MODEL_CARVER_H_
#define RUNTIME_MODEL_CARVER_H_

#include <algorithm>
#include <cstdint>

namespace megatrain {

// Hands out memory from `base` on, piece after piece, each aligned to 256 bytes; `base` itself to
// 64. Without a base it only counts.
class Carver {
 public:
  explicit Carver(void* base) : base_(RoundUp(reinterpret_cast<uintptr_t>(base))) {}

  void* Take(int64_t size_bytes) {
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
  int64_t size_bytes() const { return most_ + kAlignmentBytes - kBaseAlignmentBytes; }

 private:
  static constexpr int64_t kAlignmentBytes = 256;
  static constexpr int64_t kBaseAlignmentBytes = 64;

  template <typename Number>
  static Number RoundUp(Number bytes) {
    return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }

  const uintptr_t base_;
  int64_t next_ = 0;
  int64_t most_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CARVER_H_
