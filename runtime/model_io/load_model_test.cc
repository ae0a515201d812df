#include "runtime/model_io/load_model.h"

#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/posix_file_system.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model_io/model_folder_for_test.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PosixFileSystem file_system;

struct Loaded {
  std::unique_ptr<ModelFolder> folder;
  ModelLayout layout;
  std::unique_ptr<HostStore> store;
  absl::Status status;
};

// A store that a job used before: no byte of it is zero.
std::unique_ptr<HostStore> UsedStore(const ModelLayout& layout) {
  auto store = HostStore::Create(layout, {.protect_idle_units = true});
  EXPECT_TRUE(store.ok()) << store.status();
  for (int unit = 0; unit < (*store)->unit_count(); ++unit) {
    const auto access = (*store)->BeginAccess(unit);
    const int64_t count = layout.units[unit].element_count;
    std::memset((*store)->hi(unit), 0x11, 2 * count);
    std::memset((*store)->lo(unit), 0x11, 2 * count);
    std::memset((*store)->moment1(unit), 0x11, 4 * count);
    std::memset((*store)->moment2(unit), 0x11, 4 * count);
  }
  return *std::move(store);
}

Loaded Load(const std::string& path) {
  auto folder = ModelFolder::Open(path, file_system);
  EXPECT_TRUE(folder.ok()) << folder.status();
  Loaded loaded;
  loaded.folder = *std::move(folder);
  loaded.layout = MakeModelLayout(loaded.folder->config());
  loaded.store = UsedStore(loaded.layout);
  int64_t last_done_bytes = 0;
  int64_t last_all_bytes = 0;
  loaded.status = LoadModel(*loaded.folder, loaded.layout, *loaded.store,
                            [&](int64_t done_bytes, int64_t all_bytes) {
                              EXPECT_GT(done_bytes, last_done_bytes);
                              last_done_bytes = done_bytes;
                              last_all_bytes = all_bytes;
                              return absl::OkStatus();
                            });
  EXPECT_TRUE(!loaded.status.ok() || last_done_bytes == last_all_bytes);
  return loaded;
}

// The value that element `i` of a file's tensor has.
float ValueOf(const TestTensor& tensor, int64_t i) {
  if (tensor.dtype == TensorDtype::kF32) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t word = 0;
  std::memcpy(&word, tensor.bytes.data() + 2 * i, 2);
  if (tensor.dtype == TensorDtype::kBf16) {
    return JoinFloat(word, 0);
  }
  _Float16 half;
  std::memcpy(&half, &word, 2);
  return static_cast<float>(half);
}

void ExpectHolds(const TestTensors& tensors, const Loaded& loaded) {
  HostStore& store = *loaded.store;
  for (int unit = 0; unit < store.unit_count(); ++unit) {
    const auto access = store.BeginAccess(unit);
    int64_t element = 0;
    for (const TensorLayout& tensor : loaded.layout.units[unit].tensors) {
      const TestTensor& expected = tensors.at(tensor.name);
      for (; element < tensor.offset_elements; ++element) {
        ASSERT_EQ(store.hi(unit)[element] | store.lo(unit)[element], 0);
      }
      for (int64_t i = 0; i < tensor.element_count; ++i, ++element) {
        ASSERT_EQ(JoinFloat(store.hi(unit)[element], store.lo(unit)[element]), ValueOf(expected, i))
            << tensor.name << " " << i;
      }
    }
    for (int64_t i = 0; i < loaded.layout.units[unit].element_count; ++i) {
      ASSERT_EQ(store.moment1(unit)[i], 0.0f);
      ASSERT_EQ(store.moment2(unit)[i], 0.0f);
    }
  }
}

TEST(LoadModelTest, RebuildsEveryMasterOverWhatTheStoreHeldBefore) {
  for (TensorDtype dtype : {TensorDtype::kBf16, TensorDtype::kF32, TensorDtype::kF16}) {
    for (bool tied : {false, true}) {
      for (int shards : {1, 3}) {
        const nlohmann::json config = TestConfig(tied);
        const TestTensors tensors = RandomTensors(config, dtype, 17);
        Loaded loaded = Load(WriteModelFolder("model", config, tensors, shards));
        ASSERT_TRUE(loaded.status.ok()) << loaded.status;
        ExpectHolds(tensors, loaded);
      }
    }
  }
}

TEST(LoadModelTest, WhoHearsOfProgressCanEndIt) {
  const nlohmann::json config = TestConfig(true);
  const std::string path =
      WriteModelFolder("model", config, RandomTensors(config, TensorDtype::kBf16, 17));
  const Loaded loaded = Load(path);
  EXPECT_EQ(LoadModel(*loaded.folder, loaded.layout, *loaded.store,
                      [](int64_t, int64_t) { return absl::CancelledError("enough"); }),
            absl::CancelledError("enough"));
}

TEST(LoadModelTest, TensorsLargerThanTheBuffer) {
  nlohmann::json config = TestConfig(true);
  config["vocab_size"] = 40'000;  // 5.1 MB in F32
  const TestTensors tensors = RandomTensors(config, TensorDtype::kF32, 3);
  Loaded loaded = Load(WriteModelFolder("large", config, tensors));
  ASSERT_TRUE(loaded.status.ok()) << loaded.status;
  ExpectHolds(tensors, loaded);
}

TEST(LoadModelTest, AValueThatIsNotFiniteIsNamed) {
  const nlohmann::json config = TestConfig(false);
  TestTensors tensors = RandomTensors(config, TensorDtype::kF32, 3);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(tensors["model.layers.1.mlp.up_proj.weight"].bytes.data() + 4 * 7, &bad, 4);
  Loaded loaded = Load(WriteModelFolder("nan", config, tensors));
  EXPECT_EQ(loaded.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loaded.status.message()),
              AllOf(HasSubstr("model.layers.1.mlp.up_proj.weight"), HasSubstr("element 7")));
}

TEST(LoadModelTest, AFolderRemovedAfterOpeningStillLoads) {
  const nlohmann::json config = TestConfig(false);
  const TestTensors tensors = RandomTensors(config, TensorDtype::kBf16, 3);
  const std::string path = WriteModelFolder("removed", config, tensors);
  auto folder = ModelFolder::Open(path, file_system);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE(file_system.RemoveTree(path).ok());
  Loaded loaded = {*std::move(folder), {}, nullptr, absl::OkStatus()};
  loaded.layout = MakeModelLayout(loaded.folder->config());
  loaded.store = UsedStore(loaded.layout);
  ASSERT_TRUE(LoadModel(*loaded.folder, loaded.layout, *loaded.store).ok());
  ExpectHolds(tensors, loaded);
}

}  // namespace
}  // namespace megatrain
