#include "server/planning/plan_conversion.h"

#include <string>

#include "gtest/gtest.h"
#include "runtime/planner/machine_file.h"

namespace megatrain {
namespace {

TEST(PlanConversionTest, SaysOfAKnownMachineWhetherTheEngineTrainsThere) {
  for (const std::string& name : MachineNames()) {
    const std::string words = MachineInWords(MachineByName(name).value());
    EXPECT_EQ(words.find("planned only") == std::string::npos, name.starts_with("h200")) << words;
  }
  EXPECT_EQ(MachineInWords({.name = "this server's", .profile = {}}), "this server's");
}

}  // namespace
}  // namespace megatrain
