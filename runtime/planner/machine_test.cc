#include "runtime/planner/machine.h"

#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

// A tree of /proc and /sys files in the test's own folder.
class MachineTest : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = testing::TempDir() + "/machine_" + info->name();
    std::filesystem::remove_all(root_);
    // 1000 MiB in all, 600 MiB available: 550 MiB after the reserve.
    Write("/proc/meminfo", "MemTotal:  1024000 kB\nMemFree: 1 kB\nMemAvailable:   614400 kB\n");
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void WriteVersion2Group(const std::string& folder, const std::string& limit, int64_t usage,
                          int64_t inactive_file) {
    Write(folder + "/memory.max", limit + "\n");
    Write(folder + "/memory.current", std::to_string(usage) + "\n");
    Write(folder + "/memory.stat",
          "anon 5\nactive_file 7\ninactive_file " + std::to_string(inactive_file) + "\n");
  }

  HostMemory Read() {
    absl::StatusOr<HostMemory> memory = ReadAvailableHostMemory(root_);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *memory;
  }

  std::string root_;
};

TEST_F(MachineTest, WithoutGroupsTheFreeMemoryCountsLessAReserve) {
  const HostMemory memory = Read();
  EXPECT_EQ(memory.available_bytes, 550 * kMebibyte);
  EXPECT_NE(memory.limit.find("free memory"), std::string::npos) << memory.limit;
}

TEST_F(MachineTest, MissingMeminfoIsAnErrorThatNamesTheFile) {
  std::filesystem::remove_all(root_);
  const absl::Status status = ReadAvailableHostMemory(root_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("/proc/meminfo"), std::string::npos) << status;
}

TEST_F(MachineTest, Version2TakesTheTightestAncestorAndLeavesOutInactiveFilePages) {
  Write("/proc/self/cgroup", "0::/system.slice/megatrain.service\n");
  Write("/proc/self/mountinfo",
        "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  WriteVersion2Group("/sys/fs/cgroup/system.slice/megatrain.service", "max", 100 * kMebibyte, 0);
  WriteVersion2Group("/sys/fs/cgroup/system.slice", std::to_string(400 * kMebibyte),
                     300 * kMebibyte, 50 * kMebibyte);
  const HostMemory memory = Read();
  EXPECT_EQ(memory.available_bytes, 150 * kMebibyte);
  EXPECT_NE(memory.limit.find("system.slice"), std::string::npos) << memory.limit;
}

TEST_F(MachineTest, Version2ThrottlingLimitCounts) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/proc/self/mountinfo", "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  WriteVersion2Group("/sys/fs/cgroup/a", std::to_string(500 * kMebibyte), 100 * kMebibyte, 0);
  Write("/sys/fs/cgroup/a/memory.high", std::to_string(200 * kMebibyte));
  EXPECT_EQ(Read().available_bytes, 100 * kMebibyte);
}

TEST_F(MachineTest, Version1BesideVersion2) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/jobs/x\n0::/\n");
  Write("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/memory/jobs/x/memory.limit_in_bytes", std::to_string(64 * kMebibyte));
  Write("/sys/fs/cgroup/memory/jobs/x/memory.usage_in_bytes", std::to_string(30 * kMebibyte));
  Write("/sys/fs/cgroup/memory/jobs/x/memory.stat",
        "inactive_file 1\ntotal_inactive_file " + std::to_string(10 * kMebibyte) + "\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(Read().available_bytes, 44 * kMebibyte);
}

TEST_F(MachineTest, AContainerSeesItsOwnGroupAtTheMount) {
  Write("/proc/self/cgroup", "4:memory:/docker/abc\n");
  Write("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(128 * kMebibyte));
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(28 * kMebibyte));
  EXPECT_EQ(Read().available_bytes, 100 * kMebibyte);
}

TEST_F(MachineTest, AUsageAboveTheLimitLeavesNothing) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/proc/self/mountinfo", "25 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  WriteVersion2Group("/sys/fs/cgroup", std::to_string(10 * kMebibyte), 11 * kMebibyte, 0);
  EXPECT_EQ(Read().available_bytes, 0);
}

TEST_F(MachineTest, ResourceLimitsCountWhatTheProcessUsesAlready) {
  const std::string limits =
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max data size             unlimited            unlimited            bytes     \n"
      "Max address space         104857600            unlimited            bytes     \n";
  Write("/proc/self/limits", limits);
  Write("/proc/self/status", "VmSize:\t   20480 kB\nVmData:\t 100 kB\n");
  const HostMemory memory = Read();
  EXPECT_EQ(memory.available_bytes, 80 * kMebibyte);
  EXPECT_NE(memory.limit.find("Max address space"), std::string::npos) << memory.limit;
}

TEST_F(MachineTest, GarbageIsNoCrashAndNoLimit) {
  for (const std::string garbage : {"", "::", "0::", "-", "a b c d e - cgroup2", "\n\n:\n"}) {
    Write("/proc/self/cgroup", garbage);
    Write("/proc/self/mountinfo", garbage);
    Write("/proc/self/limits", garbage);
    EXPECT_EQ(Read().available_bytes, 550 * kMebibyte) << garbage;
  }
}

TEST(ThisMachineTest, CanBeRead) {
  absl::StatusOr<HostMemory> memory = ReadAvailableHostMemory("");
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->available_bytes, 0);
  absl::StatusOr<ProcessMemory> process = ReadProcessMemory("");
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_GT(process->resident_bytes, 0);
}

TEST(ThisMachineTest, ThePeakCanBeReset) {
  // Pages of the kernel's: an allocator may keep what is freed.
  constexpr int64_t kBytes = 200 * kMebibyte;
  void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  const int64_t peak_bytes = ReadProcessMemory("")->peak_resident_bytes;
  EXPECT_GE(peak_bytes, kBytes);
  ASSERT_EQ(munmap(block, kBytes), 0);
  if (const absl::Status status = ResetPeakResident(); !status.ok()) {
    GTEST_SKIP() << status;
  }
  EXPECT_LT(ReadProcessMemory("")->peak_resident_bytes, peak_bytes - kBytes / 2);
}

TEST(PipelineDeviceBytesTest, KeepsAReserveAndTheProcessWithinItsLimit) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  EXPECT_EQ(PipelineDeviceBytes(140 * kGibibyte, 139 * kGibibyte, 0), 138 * kGibibyte);
  EXPECT_EQ(PipelineDeviceBytes(140 * kGibibyte, 139 * kGibibyte, 64 * kGibibyte), 62 * kGibibyte);
  EXPECT_EQ(PipelineDeviceBytes(140 * kGibibyte, 0, 0), 0);
}

}  // namespace
}  // namespace megatrain
