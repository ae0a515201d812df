#ifndef RUNTIME_PIPELINE_RESULTS_LAYOUT_H_
#define RUNTIME_PIPELINE_RESULTS_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// What a step leaves for the host, in one piece of device memory and, after one copy, of host
// memory: `base` below is either.
class ResultsLayout {
 public:
  ResultsLayout(const ModelLayout& layout, int max_micro_batches)
      : micro_batches_(max_micro_batches),
        unit_count_(static_cast<int>(layout.units.size())),
        squares_offset_(max_micro_batches * static_cast<int64_t>(sizeof(HeadResult))) {
    int64_t tensors = 0;
    for (const UnitLayout& unit : layout.units) {
      first_tensor_.push_back(tensors);
      tensors += static_cast<int64_t>(unit.tensors.size());
    }
    marks_offset_ = squares_offset_ + tensors * static_cast<int64_t>(sizeof(double));
  }

  int64_t size_bytes() const { return marks_offset_ + marks_bytes(); }

  // Of all marks, which begin with that of unit 0 and micro-batch 0.
  int64_t marks_bytes() const {
    return int64_t{unit_count_} * micro_batches_ * static_cast<int64_t>(sizeof(int32_t));
  }

  HeadResult* head(std::byte* base, int micro_batch) const {
    return reinterpret_cast<HeadResult*>(base) + micro_batch;
  }

  // The sums of squares of a unit's gradients, one a tensor.
  double* squares(std::byte* base, int unit) const {
    return reinterpret_cast<double*>(base + squares_offset_) + first_tensor_[unit];
  }

  // The first row of a unit's output that is not finite, or -1; for the head unit the first row of
  // the gradient of the embedding's output.
  int32_t* mark(std::byte* base, int unit, int micro_batch) const {
    return reinterpret_cast<int32_t*>(base + marks_offset_) + int64_t{unit} * micro_batches_ +
           micro_batch;
  }

 private:
  int micro_batches_;
  int unit_count_;
  int64_t squares_offset_;
  int64_t marks_offset_ = 0;
  std::vector<int64_t> first_tensor_;  // by unit
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_RESULTS_LAYOUT_H_
