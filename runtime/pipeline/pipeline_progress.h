#ifndef RUNTIME_PIPELINE_PIPELINE_PROGRESS_H_
#define RUNTIME_PIPELINE_PIPELINE_PROGRESS_H_

#include <array>
#include <string>

#include "runtime/device/stream_figures.h"

namespace megatrain {

// What one stream of a pipeline does at one moment.
struct StreamProgress {
  StreamFigures figures;

  // The first operation that is not over, such as "layer_backward unit 3 micro-batch 1": it runs,
  // or its stream waits before it. Empty when the stream has none left.
  std::string operation;
};

using PipelineProgress = std::array<StreamProgress, kStreamCount>;  // by StreamKind

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_PROGRESS_H_
