#ifndef RUNTIME_OPTIMIZER_UPDATE_UNIT_H_
#define RUNTIME_OPTIMIZER_UPDATE_UNIT_H_

#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/optimizer/optimizer_pool.h"

namespace megatrain {

// Updates every tensor of one unit in the store from the gradient that lies there; weight decay
// only where the tensor's layout says so. The bits do not depend on the pool's threads. Holds an
// Access of the unit meanwhile; returns when all is written.
void UpdateUnit(const ModelLayout& layout, int unit, const AdamWStep& step, HostStore& store,
                OptimizerPool& pool);

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_UPDATE_UNIT_H_
