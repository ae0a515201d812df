#include "runtime/model_io/model_folder_for_test.h"

#include <fstream>
#include <memory>
#include <random>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/environment_for_test.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/safetensors/safetensors_writer.h"
#include "runtime/safetensors/shard_index.h"

namespace megatrain {
namespace {

// Finite in every dtype: exponents around one, random fractions.
std::string RandomBytes(TensorDtype dtype, int64_t count, std::mt19937& random) {
  std::string bytes;
  for (int64_t i = 0; i < count * SizeBytes(dtype); ++i) {
    const bool is_last_byte = (i + 1) % SizeBytes(dtype) == 0;
    const unsigned byte = random() & 0xff;
    bytes.push_back(static_cast<char>(is_last_byte ? (byte & 0x80) | 0x3a : byte));
  }
  return bytes;
}

void WriteShard(const std::string& path,
                const std::vector<std::pair<std::string, TestTensor>>& tensors) {
  PosixFileSystem file_system;
  SafetensorsHeader header;
  for (const auto& [name, tensor] : tensors) {
    TensorEntry entry;
    entry.name = name;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
    entry.size_bytes = static_cast<int64_t>(tensor.bytes.size());
    header.tensors.push_back(std::move(entry));
  }
  auto writer = SafetensorsWriter::Create(path, header, file_system);
  MT_CHECK(writer.ok());
  for (const auto& [name, tensor] : tensors) {
    MT_CHECK((*writer)->Append(tensor.bytes).ok());
  }
  MT_CHECK((*writer)->Finish().ok());
}

}  // namespace

nlohmann::json TestConfig(bool tied) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 96},
          {"hidden_size", 32},
          {"intermediate_size", 80},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 10},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", tied}};
}

TestTensors RandomTensors(const nlohmann::json& config, TensorDtype dtype, int seed) {
  auto parsed = ParseModelConfig(config.dump());
  MT_CHECK(parsed.ok());
  std::mt19937 random(seed);
  TestTensors tensors;
  for (const UnitLayout& unit : MakeModelLayout(*parsed).units) {
    for (const TensorLayout& tensor : unit.tensors) {
      tensors[tensor.name] = {dtype, tensor.shape,
                              RandomBytes(dtype, tensor.element_count, random)};
    }
  }
  return tensors;
}

std::string WriteModelFolder(const std::string& name, const nlohmann::json& config,
                             const TestTensors& tensors, int shard_count) {
  PosixFileSystem file_system;
  const std::string folder = EnvironmentForTest("TEST_TMPDIR") + "/" + name;
  MT_CHECK(file_system.RemoveTree(folder).ok());
  MT_CHECK(file_system.MakeFolders(folder).ok());
  WriteTextFile(folder + "/config.json", config.dump(2));
  std::vector<std::vector<std::pair<std::string, TestTensor>>> shards(shard_count);
  int next = 0;
  for (const auto& [tensor_name, tensor] : tensors) {
    shards[next++ % shard_count].emplace_back(tensor_name, tensor);
  }
  if (shard_count == 1) {
    WriteShard(folder + "/model.safetensors", shards[0]);
    return folder;
  }
  ShardIndex index;
  int64_t size_bytes = 0;
  for (int i = 0; i < shard_count; ++i) {
    const std::string file = "model-0000" + std::to_string(i) + "-of-00009.safetensors";
    WriteShard(folder + "/" + file, shards[i]);
    for (const auto& [tensor_name, tensor] : shards[i]) {
      index.file_of[tensor_name] = file;
      size_bytes += static_cast<int64_t>(tensor.bytes.size());
    }
  }
  WriteTextFile(folder + "/" + kShardIndexName, SerializeShardIndex(index, size_bytes));
  return folder;
}

void WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  MT_CHECK(file.good());
}

std::string ReadWholeFile(const std::string& path) {
  PosixFileSystem file_system;
  auto text = file_system.ReadFile(path, int64_t{1} << 30);
  MT_CHECK(text.ok());
  return *std::move(text);
}

}  // namespace megatrain
