#ifndef SERVER_RESOURCES_CHECKPOINT_TRIGGER_H_
#define SERVER_RESOURCES_CHECKPOINT_TRIGGER_H_

#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/checkpoint/manifest.h"

namespace megatrain {

inline v1::CheckpointTrigger TriggerToProto(CheckpointTrigger trigger) {
  switch (trigger) {
    case CheckpointTrigger::kPeriodic:
      return v1::CHECKPOINT_TRIGGER_PERIODIC;
    case CheckpointTrigger::kManual:
      return v1::CHECKPOINT_TRIGGER_MANUAL;
    case CheckpointTrigger::kPause:
      return v1::CHECKPOINT_TRIGGER_PAUSE;
    case CheckpointTrigger::kDrain:
      return v1::CHECKPOINT_TRIGGER_DRAIN;
    case CheckpointTrigger::kFinal:
      return v1::CHECKPOINT_TRIGGER_FINAL;
    case CheckpointTrigger::kPreempt:
      return v1::CHECKPOINT_TRIGGER_PREEMPT;
  }
  return v1::CHECKPOINT_TRIGGER_UNSPECIFIED;
}

}  // namespace megatrain

#endif  // SERVER_RESOURCES_CHECKPOINT_TRIGGER_H_
