// Model folders for tests: the toy shapes of real architectures, with random weights.

#ifndef RUNTIME_MODEL_IO_MODEL_FOLDER_FOR_TEST_H_
#define RUNTIME_MODEL_IO_MODEL_FOLDER_FOR_TEST_H_

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/safetensors/safetensors_header.h"
#include "runtime/safetensors/tensor_dtype.h"

namespace megatrain {

// A tensor with its contents.
struct TestTensor {
  TensorDtype dtype = TensorDtype::kBf16;
  std::vector<int64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

// A small Llama, untied, of 2 layers.
nlohmann::json TestConfig(bool tied);

// Every tensor that `config` asks for, with finite random values of `dtype`.
TestTensors RandomTensors(const nlohmann::json& config, TensorDtype dtype, int seed);

// Writes config.json and model.safetensors, or, with several shards, as many files counted from
// 0 and their index. Returns the folder, which is new and below the test's temporary one.
std::string WriteModelFolder(const std::string& name, const nlohmann::json& config,
                             const TestTensors& tensors, int shard_count = 1);

void WriteTextFile(const std::string& path, const std::string& text);
std::string ReadWholeFile(const std::string& path);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_MODEL_FOLDER_FOR_TEST_H_
