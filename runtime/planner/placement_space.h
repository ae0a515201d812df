// Which placements a search may choose from, and which of them fit. Pure.

#ifndef RUNTIME_PLANNER_PLACEMENT_SPACE_H_
#define RUNTIME_PLANNER_PLACEMENT_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/placement_choice.h"
#include "runtime/planner/placement_request.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// The largest value in [least, most] whose excess is not above 0, or least. The excess rises with
// the value, by steps that are nearly equal: a straight line finds the largest sooner than halving.
int LargestThatFits(int least, int most, double least_excess,
                    const std::function<double(int)>& excess_of);

// Refers to its arguments.
class PlacementSpace {
 public:
  // A number of a choice. One that fills takes what memory there is: more of it is never slower.
  struct Dimension {
    int Choice::* count;
    int least;
    int most;
    bool fills;

    bool is_fixed() const { return least == most; }
    bool is_by_micro_batch() const {
      return count == &Choice::host_kept_micro_batches ||
             count == &Choice::device_kept_micro_batches;
    }
  };

  // Bytes of a choice above what the request has room for; it fits where both are 0 and below.
  struct Excesses {
    double device;
    double host;
  };

  PlacementSpace(const ModelLayout& layout, const PlacementRequest& request,
                 const BackendMemory& memory);
  PlacementSpace(const PlacementSpace&) = delete;  // dimensions are told apart by their addresses
  PlacementSpace& operator=(const PlacementSpace&) = delete;

  const PlacementRequest& request() const { return request_; }
  const PlacementSubject& subject() const { return subject_; }

  // Those that fill come first.
  const std::vector<Dimension>& dimensions() const { return dimensions_; }

  // Descending, each once, such that a step's micro-batches are of one size but for the last.
  std::vector<int64_t> MicroBatchRows() const;

  int64_t MicroBatches(int64_t rows) const { return (request_.step.rows + rows - 1) / rows; }

  // Whether micro-batches of so many rows may gain something in that order.
  bool IsUseful(MicroBatchOrder order, int64_t rows) const;

  // The choice with the least of every dimension.
  Choice Least(MicroBatchOrder order, int64_t rows, KeepLevel keep) const;

  // Those of a dimension that are worth a try beside the choice's own; none of a fixed one.
  std::vector<int> Values(const Dimension& dimension, const Choice& choice) const;

  // Puts as much on the device as has room, beginning with the dimension `first`, one of the first
  // three; `but`, which may be null, stays as it is. Requires a choice that fits, with its excess.
  Choice Fill(Choice choice, double excess, size_t first, const Dimension* but) const;

  Excesses ExcessesOf(const Choice& choice) const;
  double ExcessOf(const Choice& choice) const;  // the larger of both

 private:
  Dimension SlotDimension(int layers) const;
  int64_t HostBytes(const PipelineOptions& options, const DeviceMemoryMap& map) const;
  int64_t GradientBytes(const PipelineOptions& options) const;
  int LeastKeptGradients(int units) const;

  const PlacementRequest& request_;
  const PlacementSubject subject_;
  std::vector<Dimension> dimensions_;
};

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLACEMENT_SPACE_H_
