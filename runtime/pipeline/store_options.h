#ifndef RUNTIME_PIPELINE_STORE_OPTIONS_H_
#define RUNTIME_PIPELINE_STORE_OPTIONS_H_

#include "runtime/hoststore/host_store.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_options.h"

namespace megatrain {

// The host store of a model that is computed in `dtype`, under a placement: of default options, one
// with memory for all gradients. `fold_layers` are HostStore's.
inline HostStore::Options StoreOptions(ComputeDtype dtype, const PipelineOptions& pipeline,
                                       int fold_layers = 0) {
  return {.gradient_bytes = static_cast<int>(SizeBytes(dtype)),
          .gradients = HostGradients(pipeline),
          .fold_layers = fold_layers};
}

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_STORE_OPTIONS_H_
