#include "runtime/machine/measure_machine.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/trainer/cpu_backend.h"

namespace megatrain {
namespace {

TEST(MeasureMachineTest, MeasuresOnceAndKeepsIt) {
  SystemClock clock;
  PosixFileSystem files;
  const auto backend = MakeCpuBackend(1);
  const std::string path = testing::TempDir() + "/machine/profile.json";
  ASSERT_TRUE(files.RemoveTree(testing::TempDir() + "/machine").ok());
  const absl::StatusOr<Machine> first =
      KnowMachine(path, 1, ForeignFile::kReplace, *backend, files, clock);
  ASSERT_TRUE(first.ok()) << first.status();
  const MachineSpeeds& speeds = first->profile.speeds;
  EXPECT_GT(speeds.matmul_flops, 1e8);
  EXPECT_LT(speeds.matmul_flops, 1e14);
  for (const double bytes : {speeds.bus_up_bytes, speeds.bus_down_bytes, speeds.bus_both_bytes,
                             speeds.slab_bytes, speeds.host_memory_bytes}) {
    EXPECT_GT(bytes, 1e8);
    EXPECT_LT(bytes, 1e13);
  }
  EXPECT_GT(speeds.host_updates, 1e6);
  EXPECT_GT(first->profile.disk_write_bytes_per_second, 0);
  // Times differ from run to run in their last digits: equal ones were read.
  const absl::StatusOr<Machine> second =
      KnowMachine(path, 1, ForeignFile::kReplace, *backend, files, clock);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->profile.speeds.host_updates, speeds.host_updates);
  // With other threads it is another machine.
  const absl::StatusOr<Machine> other =
      KnowMachine(path, 2, ForeignFile::kReplace, *backend, files, clock);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->profile.speeds.host_updates, speeds.host_updates);
}

TEST(MeasureMachineTest, AFileThatIsBrokenIsMadeAnew) {
  SystemClock clock;
  PosixFileSystem files;
  const auto backend = MakeCpuBackend(1);
  const std::string path = testing::TempDir() + "/broken_profile.json";
  {
    const auto file = files.OpenForWriting(path, /*append=*/false);
    ASSERT_TRUE(file.ok() && (*file)->Append("{").ok() && (*file)->Close().ok());
  }
  ASSERT_TRUE(KnowMachine(path, 1, ForeignFile::kReplace, *backend, files, clock).ok());
  EXPECT_TRUE(ParseMachine(files.ReadFile(path, 1 << 20).value()).ok());
}

TEST(MeasureMachineTest, AFileThatSomebodyNamedIsNotReplaced) {
  SystemClock clock;
  PosixFileSystem files;
  const auto backend = MakeCpuBackend(1);
  const std::string path = testing::TempDir() + "/note.json";
  std::ofstream(path) << "keep me";
  const auto know = [&] {
    return KnowMachine(path, 1, ForeignFile::kRefuse, *backend, files, clock).status();
  };
  EXPECT_EQ(know().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(files.ReadFile(path, 100).value(), "keep me");
  std::ofstream(path) << ToJson(MachineByName("a100-pcie").value());
  EXPECT_NE(std::string(know().message()).find("it is of A100 PCIe"), std::string::npos) << know();
}

TEST(MeasureMachineTest, AFileMayBeNamedWithoutAFolder) {
  SystemClock clock;
  PosixFileSystem files;
  const auto backend = MakeCpuBackend(1);
  std::filesystem::current_path(testing::TempDir());
  ASSERT_TRUE(files.RemoveTree("bare.json").ok());
  EXPECT_TRUE(KnowMachine("bare.json", 1, ForeignFile::kRefuse, *backend, files, clock).ok());
  EXPECT_TRUE(KnowMachine("bare.json", 1, ForeignFile::kRefuse, *backend, files, clock).ok());
}

TEST(MeasureMachineTest, AnOptimizerFarBelowTheMemoryIsWarnedOf) {
  MachineSpeeds speeds;
  speeds.host_memory_bytes = 200e9;
  speeds.host_updates = 5e9;
  const OptimizerBandwidth good = DescribeOptimizer(speeds, 16);
  EXPECT_FALSE(good.is_low);
  EXPECT_NE(good.line.find("adamw_bw/D = 0.65"), std::string::npos) << good.line;
  speeds.host_updates = 4e9;
  const OptimizerBandwidth low = DescribeOptimizer(speeds, 16);
  EXPECT_TRUE(low.is_low);
  EXPECT_EQ(low.line.find("ADAMW_FAR_BELOW_MEMORY_BANDWIDTH"), 0u) << low.line;
}

}  // namespace
}  // namespace megatrain
