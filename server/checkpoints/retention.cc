#include "server/checkpoints/retention.h"

namespace megatrain {

std::vector<std::string> CheckpointsToRemove(const std::vector<v1::Checkpoint>& newest_first,
                                             const RetentionRules& rules) {
  std::vector<std::string> removed;
  int64_t whole_count = 0;
  bool pause_seen = false;
  for (const v1::Checkpoint& checkpoint : newest_first) {
    const bool is_whole = checkpoint.damage().empty();
    const bool is_left =
        checkpoint.step() > rules.rewound_step && rules.before_rewind.contains(checkpoint.name());
    bool kept = checkpoint.pinned() || rules.needed.contains(checkpoint.name());
    if (is_whole && !is_left) {
      kept = kept || checkpoint.best() || whole_count < rules.keep_last;
      ++whole_count;
      if (checkpoint.trigger() == v1::CHECKPOINT_TRIGGER_PAUSE && !pause_seen) {
        kept = pause_seen = true;
      }
    }
    if (!kept) {
      removed.push_back(checkpoint.name());
    }
  }
  return whole_count > 0 ? removed : std::vector<std::string>();
}

}  // namespace megatrain
