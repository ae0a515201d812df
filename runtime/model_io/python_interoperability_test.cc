#include <cstdlib>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model_io/export_model.h"
#include "runtime/model_io/load_model.h"
#include "runtime/model_io/model_folder.h"

namespace megatrain {
namespace {

// Runs the script beside this test; what it says goes to the test's log.
void RunPython(const std::string& arguments) {
  const char* packages =
      std::getenv("MEGATRAIN_DEPS");  // NOLINT(concurrency-mt-unsafe): nobody sets any
  ASSERT_NE(packages, nullptr) << "eval \"$(deploy/setup)\" first";
  const std::string command = std::string("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='") + packages +
                              "' /usr/bin/python3 runtime/model_io/python_interoperability.py " +
                              arguments;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// What one optimizer step could do: every master weight grows by 1/1024.
void MoveWeights(const ModelLayout& layout, HostStore& store) {
  for (int unit = 0; unit < store.unit_count(); ++unit) {
    const auto access = store.BeginAccess(unit);
    for (int64_t i = 0; i < layout.units[unit].element_count; ++i) {
      const SplitFloat moved =
          Split(JoinFloat(store.hi(unit)[i], store.lo(unit)[i]) + 1.0f / 1024.0f);
      store.hi(unit)[i] = moved.hi;
      store.lo(unit)[i] = moved.lo;
    }
  }
}

TEST(PythonInteroperabilityTest, ReadsWhatPythonWritesAndTheOtherWayRound) {
  PosixFileSystem file_system;
  const std::string base = ::testing::TempDir() + "/python";
  ASSERT_TRUE(file_system.RemoveTree(base).ok());
  RunPython("make " + base + "/source");
  auto folder = ModelFolder::Open(base + "/source", file_system);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const ModelLayout layout = MakeModelLayout((*folder)->config());
  auto store = HostStore::Create(layout, {});
  ASSERT_TRUE(store.ok()) << store.status();
  absl::Status status = LoadModel(**folder, layout, **store);
  ASSERT_TRUE(status.ok()) << status;

  status = ExportModel(**folder, layout, **store, base + "/same", file_system);
  ASSERT_TRUE(status.ok()) << status;
  const std::string weights = "/model.safetensors";
  EXPECT_EQ(*file_system.ReadFile(base + "/source" + weights, 1 << 20),
            *file_system.ReadFile(base + "/same" + weights, 1 << 20));

  MoveWeights(layout, **store);
  status = ExportModel(**folder, layout, **store, base + "/moved", file_system);
  ASSERT_TRUE(status.ok()) << status;
  RunPython("check " + base + "/same " + base + "/moved");
}

}  // namespace
}  // namespace megatrain
