// For tests: writes folders of small models with random weights.

#ifndef RUNTIME_TRAINER_TOY_MODEL_FOR_TEST_H_
#define RUNTIME_TRAINER_TOY_MODEL_FOR_TEST_H_

#include <cstdint>
#include <string>

namespace megatrain {

struct ToyModel {
  int64_t vocab_size = 64;
  int64_t hidden_size = 32;
  int64_t mlp_width = 48;
  int64_t layer_count = 3;
  int64_t head_count = 4;
  int64_t kv_head_count = 2;
  bool tied = true;
  uint32_t seed = 1;
};

// A new folder `name` in the test's temporary folder with config.json, generation_config.json,
// tokenizer.json and model.safetensors (bf16) of a Llama of that shape. Returns its path.
std::string WriteToyModel(const std::string& name, const ToyModel& model);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TOY_MODEL_FOR_TEST_H_
