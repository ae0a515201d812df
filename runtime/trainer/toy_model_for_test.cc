#include "runtime/trainer/toy_model_for_test.h"

#include <bit>
#include <filesystem>
#include <fstream>
#include <random>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"

namespace megatrain {
namespace {

nlohmann::json ConfigOf(const ToyModel& model) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", model.vocab_size},
          {"hidden_size", model.hidden_size},
          {"intermediate_size", model.mlp_width},
          {"num_hidden_layers", model.layer_count},
          {"num_attention_heads", model.head_count},
          {"num_key_value_heads", model.kv_head_count},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 512},
          {"rope_theta", 10000.0},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", model.tied},
          {"torch_dtype", "bfloat16"}};
}

uint16_t ToBfloat16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

// The file's bytes: u64 size of the header, the header, the tensors one after another.
std::string SafetensorsOf(const ModelLayout& layout, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.08f);
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const UnitLayout& unit : layout.units) {
    for (const TensorLayout& tensor : unit.tensors) {
      const size_t begin = data.size();
      for (int64_t i = 0; i < tensor.element_count; ++i) {
        const uint16_t bits = ToBfloat16(tensor.shape.size() == 1 ? 1.0f : normal(random));
        data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
      }
      header[tensor.name] = {
          {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data;
}

}  // namespace

std::string WriteToyModel(const std::string& name, const ToyModel& model) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string config_text = ConfigOf(model).dump(1);
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(config_text);
  EXPECT_TRUE(config.ok()) << config.status();
  std::ofstream(folder + "/config.json") << config_text;
  std::ofstream(folder + "/generation_config.json") << "{\"eos_token_id\": 2}";
  std::ofstream(folder + "/tokenizer.json") << "{\"version\": \"1.0\"}";
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << SafetensorsOf(MakeModelLayout(*config), model.seed);
  return folder;
}

}  // namespace megatrain
