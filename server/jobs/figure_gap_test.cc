#include "server/jobs/figure_gap.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

v1::JobEvent Step(int64_t step) {
  v1::JobEvent event;
  event.mutable_step()->set_step(step);
  return event;
}

v1::JobEvent Evaluation(int64_t step) {
  v1::JobEvent event;
  event.mutable_evaluation()->set_step(step);
  return event;
}

std::string Words(const std::vector<v1::JobEvent>& events) {
  std::string words;
  for (const v1::JobEvent& event : events) {
    absl::StrAppend(&words, event.has_step() ? "s" : "e",
                    event.has_step() ? event.step().step() : event.evaluation().step(), " ");
  }
  return words;
}

TEST(FigureGapTest, WhatWasLostAtTheEndIsFound) {
  const std::vector<v1::JobEvent> remembered = {Step(1), Step(2), Evaluation(2), Step(3), Step(4)};
  EXPECT_EQ(Words(FiguresNotTold(remembered, {}, 0)), "s1 s2 e2 s3 s4 ");
  EXPECT_EQ(Words(FiguresNotTold(remembered, {Step(1), Step(2)}, 0)), "e2 s3 s4 ");
  EXPECT_EQ(Words(FiguresNotTold(remembered, {Step(1), Step(2), Evaluation(2), Step(3)}, 0)),
            "s4 ");
  EXPECT_EQ(Words(FiguresNotTold(remembered, remembered, 0)), "");
}

TEST(FigureGapTest, StepsBehindTheCheckpointSayNothingOfThoseBeforeIt) {
  EXPECT_EQ(Words(FiguresNotTold({Step(1), Step(2), Step(3)}, {Step(1), Step(7)}, 0)), "s2 s3 ");
}

TEST(FigureGapTest, AForkDoesNotTellOfItsSourcesSteps) {
  EXPECT_EQ(Words(FiguresNotTold({Step(1), Step(2), Evaluation(2), Step(3)}, {}, 2)), "s3 ");
}

}  // namespace
}  // namespace megatrain
