// What a job's events do not tell of, though a checkpoint remembers it: whoever told of it died
// before it was recorded. Pure.

#ifndef SERVER_JOBS_FIGURE_GAP_H_
#define SERVER_JOBS_FIGURE_GAP_H_

#include <cstdint>
#include <vector>

#include "megatrain/v1/job_service.pb.h"

namespace megatrain {

// Of `remembered`, the steps and evaluations up to a checkpoint in order, those behind the last one
// that `told` has of each, and behind step `first_step`, at which the job began.
std::vector<v1::JobEvent> FiguresNotTold(const std::vector<v1::JobEvent>& remembered,
                                         const std::vector<v1::JobEvent>& told, int64_t first_step);

}  // namespace megatrain

#endif  // SERVER_JOBS_FIGURE_GAP_H_
