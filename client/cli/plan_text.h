#ifndef CLIENT_CLI_PLAN_TEXT_H_
#define CLIENT_CLI_PLAN_TEXT_H_

#include <string>
#include <vector>

#include "megatrain/v1/job.pb.h"

namespace megatrain {

// A plan in four lines: the work, host memory, device memory, the verdict.
std::vector<std::string> PlanLines(const v1::Plan& plan);

// A plan for somebody who wants to know why: memory by kind in words, what lies where, where a
// step's time goes, what sets it, and what would shorten it.
std::vector<std::string> ExplainedPlanLines(const v1::Plan& plan);

}  // namespace megatrain

#endif  // CLIENT_CLI_PLAN_TEXT_H_
