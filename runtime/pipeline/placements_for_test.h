// The placements under which the pipeline's tests train a SmallLayout.

#ifndef RUNTIME_PIPELINE_PLACEMENTS_FOR_TEST_H_
#define RUNTIME_PIPELINE_PLACEMENTS_FOR_TEST_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

struct Placement {
  bool tied = false;
  ComputeDtype dtype = ComputeDtype::kFloat32;
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slots = 2;
  int gradient_slots = 1;
  bool resident = false;
  int threads = 1;
  std::vector<UpdatePlacement> updates = {};
  std::vector<KeepLevel> keep = {};
  int staging_slots = 2;
  std::vector<bool> boundary_on_host = {};
  std::vector<bool> kept_on_host = {};
  std::vector<KeptPlace> kept_places = {};
  int stash_slots = 1;
  int fold_stash_layers = 0;
  PinMode pin = PinMode::kAuto;
  int64_t slab_bytes = kSlabBytes;
};

std::string Describe(const Placement& p);

// Some of each kind, and mixes of them.
std::vector<Placement> AllPlacements();

// A placement of its own by chance.
Placement RandomPlacement(std::mt19937& random);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PLACEMENTS_FOR_TEST_H_
