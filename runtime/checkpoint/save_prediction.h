#ifndef RUNTIME_CHECKPOINT_SAVE_PREDICTION_H_
#define RUNTIME_CHECKPOINT_SAVE_PREDICTION_H_

#include <cstdint>

namespace megatrain {

// What a save has to move, and how fast that goes.
struct SaveLoad {
  int64_t checkpoint_bytes = 0;    // to the disk
  int64_t device_state_bytes = 0;  // of units whose state is on the device: to the host first
  double disk_bytes_per_second = 0;
  double bus_bytes_per_second = 0;
  double drain_seconds = 0;  // until updates under way are over
};

// How long training stands still for a save: nothing of it overlaps, since the state must not
// change. 0 where a speed that counts is not known.
inline double PredictSaveStallSeconds(const SaveLoad& load) {
  const bool crosses_bus = load.device_state_bytes > 0;
  if (load.disk_bytes_per_second <= 0 || (crosses_bus && load.bus_bytes_per_second <= 0)) {
    return 0;
  }
  const double bus_seconds =
      crosses_bus ? static_cast<double>(load.device_state_bytes) / load.bus_bytes_per_second : 0;
  return load.drain_seconds + bus_seconds +
         static_cast<double>(load.checkpoint_bytes) / load.disk_bytes_per_second;
}

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_SAVE_PREDICTION_H_
