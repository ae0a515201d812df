#include "server/checkpoints/checkpoint_uses.h"

namespace megatrain {
namespace {

constexpr absl::Duration kMoment = absl::Minutes(1);

}  // namespace

CheckpointInUse CheckpointUses::Begin(const v1::Checkpoint& checkpoint) {
  MutexLock lock(&mutex_);
  ++uses_[checkpoint.uid()].count;
  return {new v1::Checkpoint(checkpoint), [this](const v1::Checkpoint* used) {
            const std::unique_ptr<const v1::Checkpoint> last(used);
            End(last->uid());
          }};
}

void CheckpointUses::End(const std::string& uid) {
  MutexLock lock(&mutex_);
  Uses& uses = uses_[uid];
  --uses.count;
  uses.last_end = clock_.MonotonicNow();
}

void CheckpointUses::NoteReader(const v1::Checkpoint& checkpoint) {
  MutexLock lock(&mutex_);
  uses_[checkpoint.uid()].read = true;
}

bool CheckpointUses::InUse(const std::string& uid) {
  MutexLock lock(&mutex_);
  const auto found = uses_.find(uid);
  return found != uses_.end() && found->second.count > 0;
}

bool CheckpointUses::IsWanted(const std::string& uid) {
  MutexLock lock(&mutex_);
  ForgetOld();
  return uses_.contains(uid);
}

void CheckpointUses::ForgetOld() {
  const absl::Duration now = clock_.MonotonicNow();
  std::erase_if(uses_, [now](const auto& each) {
    const Uses& uses = each.second;
    return uses.count == 0 && (!uses.read || now - uses.last_end > kMoment);
  });
}

}  // namespace megatrain
