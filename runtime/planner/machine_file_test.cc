#include "runtime/planner/machine_file.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(MachineFileTest, WhatIsWrittenIsRead) {
  for (const std::string& name : MachineNames()) {
    const Machine machine = MachineByName(name).value();
    const Machine read = ParseMachine(ToJson(machine)).value();
    EXPECT_EQ(read.name, machine.name);
    EXPECT_EQ(read.profile.backend, machine.profile.backend);
    EXPECT_EQ(read.profile.device_memory_bytes, machine.profile.device_memory_bytes);
    EXPECT_EQ(read.profile.host_available_bytes, machine.profile.host_available_bytes);
    EXPECT_EQ(read.profile.speeds.matmul_flops, machine.profile.speeds.matmul_flops);
    EXPECT_EQ(read.profile.speeds.slab_bytes, machine.profile.speeds.slab_bytes);
    EXPECT_EQ(read.profile.speeds.host_updates, machine.profile.speeds.host_updates);
  }
}

// What an engine keeps: its sizes come and go, and are not in it.
TEST(MachineFileTest, SizesMayBeUnknown) {
  const Machine machine{.name = "measured", .profile = {.backend = Backend::kCpu, .speeds = {}}};
  const absl::StatusOr<Machine> read = ParseMachine(ToJson(machine));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name, "measured");
  EXPECT_EQ(read->profile.backend, Backend::kCpu);
  EXPECT_EQ(read->profile.device_memory_bytes, 0);
}

// The message of a text's refusal; "" when it is none.
std::string Refusal(const std::string& json) {
  return std::string(ParseMachine(json).status().message());
}

TEST(MachineFileTest, WhatIsWrongIsNamed) {
  const std::string good = ToJson(MachineByName("a100-pcie").value());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_NE(Refusal("[]").find("speeds"), std::string::npos);
  EXPECT_NE(Refusal("{").find("line"), std::string::npos);
  EXPECT_NE(Refusal(replaced("bus_up_bytes", "bus_speed")).find("speeds.bus_up_bytes"),
            std::string::npos);
  EXPECT_NE(Refusal(replaced("\"name\"", "\"title\"")).find("title"), std::string::npos);
  EXPECT_NE(Refusal(replaced("\"cuda\"", "\"rocm\"")).find("backend"), std::string::npos);
  EXPECT_NE(Refusal(replaced("\"host_updates\": 4", "\"host_updates\": -4")).find("host_updates"),
            std::string::npos);
  EXPECT_NE(Refusal(replaced("A100 PCIe", "A100\\nverdict: fits")).find("name"), std::string::npos);
  EXPECT_EQ(Refusal(replaced("\"slab_bytes\": 20000000000.0,", "")), "");
  // With such speeds a step would have no time.
  EXPECT_NE(Refusal(replaced("\"host_updates\": 4", "\"host_updates\": 1e-300, \"x\": 4"))
                .find("speeds.host_updates is 1e-300"),
            std::string::npos);
  EXPECT_NE(std::string(MachineByName("pdp-11").status().message()).find("h200-1536g"),
            std::string::npos);
}

}  // namespace
}  // namespace megatrain
