// Placements that the planner can choose, for tests that compare the bits of trainings under them.

#ifndef TESTS_PARITY_COMPARED_PLACEMENTS_H_
#define TESTS_PARITY_COMPARED_PLACEMENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/model/layer_template.h"
#include "tests/parity/toy_training.h"
#include "tests/parity/training_rig.h"

namespace megatrain {

struct ComparedPlacement {
  std::string name;
  RigOptions options;
  int steps_ahead = 1;
};

// What a training is compared on. Its placements have its dtype and limits.
struct ComparedModel {
  int unit_count = 0;
  ComputeDtype dtype = ComputeDtype::kFloat32;
  bool keeps_activations = false;  // the backend's templates can
  int64_t state_chunk_elements = 4096;
  int64_t slab_bytes = 5000;  // a copy takes many
  int64_t max_tokens = 512;
  int every = 1;  // one in so many placements, where each takes long
};

// All weights on the device, updates on the host, first. Then each place where something may be,
// of all units and of some, in both orders, with slots, chunks and threads that differ, with memory
// of the host that is pinned and through slabs; what can be mixed is mixed.
std::vector<ComparedPlacement> PlacementsToCompare(const ComparedModel& model);

// Fails where `train` does not give all that it gave for the first placement, to the bit.
void ExpectEqualTrainings(const std::vector<ComparedPlacement>& placements,
                          const std::function<Outcome(const ComparedPlacement&)>& train);

}  // namespace megatrain

#endif  // TESTS_PARITY_COMPARED_PLACEMENTS_H_
