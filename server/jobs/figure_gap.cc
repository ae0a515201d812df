#include "server/jobs/figure_gap.h"

#include <algorithm>
#include <iterator>

namespace megatrain {
namespace {

struct LastSteps {
  int64_t step;
  int64_t evaluation;
};

}  // namespace

std::vector<v1::JobEvent> FiguresNotTold(const std::vector<v1::JobEvent>& remembered,
                                         const std::vector<v1::JobEvent>& told,
                                         int64_t first_step) {
  LastSteps end{first_step, first_step};
  for (const v1::JobEvent& event : remembered) {
    end.step = std::max(end.step, event.step().step());
    end.evaluation = std::max(end.evaluation, event.evaluation().step());
  }
  // Steps behind the checkpoint are done again, and tell nothing of those before it.
  LastSteps last{first_step, first_step};
  for (const v1::JobEvent& event : told) {
    if (event.step().step() <= end.step) {
      last.step = std::max(last.step, event.step().step());
    }
    if (event.evaluation().step() <= end.evaluation) {
      last.evaluation = std::max(last.evaluation, event.evaluation().step());
    }
  }
  std::vector<v1::JobEvent> missing;
  std::copy_if(remembered.begin(), remembered.end(), std::back_inserter(missing),
               [&last](const v1::JobEvent& event) {
                 return event.has_step() ? event.step().step() > last.step
                                         : event.evaluation().step() > last.evaluation;
               });
  return missing;
}

}  // namespace megatrain
