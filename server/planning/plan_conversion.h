// Between the API's messages and the planner's values.

#ifndef SERVER_PLANNING_PLAN_CONVERSION_H_
#define SERVER_PLANNING_PLAN_CONVERSION_H_

#include <string>

#include "megatrain/v1/job.pb.h"
#include "runtime/planner/machine_file.h"
#include "runtime/planner/plan_explanation.h"
#include "runtime/planner/planner.h"

namespace megatrain {

// Of a spec that CompleteTrainingSpec found right.
JobShape JobShapeOf(const v1::TrainingSpec& spec);

v1::Plan PlanToProto(const Plan& plan);

// Adds why the plan is so.
void ExplanationToProto(const PlanExplanation& explanation, v1::Plan& plan);

// What a plan is for, in words: the machine's name, and whether the engine trains there.
std::string MachineInWords(const Machine& machine);

}  // namespace megatrain

#endif  // SERVER_PLANNING_PLAN_CONVERSION_H_
