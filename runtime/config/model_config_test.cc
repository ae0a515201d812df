#include "runtime/config/model_config.h"

#include <cmath>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Llama() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "attention_bias": false, "attention_dropout": 0.0, "mlp_bias": false, "pretraining_tp": 1,
    "tie_word_embeddings": true, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "eos_token_id": [128001, 128008, 128009], "use_cache": true, "bos_token_id": 128000})");
}

json With(json config, const json& changes) {
  config.update(changes);
  return config;
}

json Without(json config, const char* key) {
  config.erase(key);
  return config;
}

ModelConfig Parsed(const json& config) {
  auto parsed = ParseModelConfig(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig();
}

std::string ErrorOf(const json& config) {
  return std::string(ParseModelConfig(config.dump()).status().message());
}

std::string TrainErrorOf(const json& config) {
  return std::string(CheckTrainable(Parsed(config)).message());
}

TEST(ModelConfigTest, ReadsLlama) {
  ModelConfig config = Parsed(Llama());
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.kv_head_count, 8);
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_TRUE(config.tied);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_THAT(config.unsupported, IsEmpty());
  EXPECT_EQ(config.ParameterCount(), 1'235'814'400);
  EXPECT_EQ(config.ParameterCount(), config.ActiveParameterCount());
  EXPECT_EQ(config.LargestUnitParameterCount(), int64_t{128256} * 2048);
  EXPECT_TRUE(CheckTrainable(config).ok()) << CheckTrainable(config);
}

// Dimensions of a public model and its published total, from the families' tables.
struct Published {
  const char* architecture;
  const char* model_type;
  int64_t d, layers, heads, kv, head_dim, ff, vocab;
  bool tied;
  double billions;             // to three digits after the point
  double active_billions = 0;  // with both tables, so more than model cards say
  json more = json::object();
};

json ConfigOf(const Published& p) {
  json config = {{"architectures", {p.architecture}},
                 {"model_type", p.model_type},
                 {"vocab_size", p.vocab},
                 {"hidden_size", p.d},
                 {"intermediate_size", p.ff},
                 {"num_hidden_layers", p.layers},
                 {"num_attention_heads", p.heads},
                 {"num_key_value_heads", p.kv},
                 {"head_dim", p.head_dim},
                 {"max_position_embeddings", 8192},
                 {"rms_norm_eps", 1e-6},
                 {"tie_word_embeddings", p.tied}};
  config.update(p.more);
  return config;
}

TEST(ModelConfigTest, CountsPublishedModels) {
  const char* llama = "LlamaForCausalLM";
  const char* qwen2 = "Qwen2ForCausalLM";
  const char* qwen3 = "Qwen3ForCausalLM";
  const json gpt_oss_20b = {{"num_local_experts", 32}, {"num_experts_per_tok", 4}};
  const json gpt_oss_120b = {{"num_local_experts", 128}, {"num_experts_per_tok", 4}};
  const json qwen3_moe = {
      {"num_experts", 128}, {"num_experts_per_tok", 8}, {"moe_intermediate_size", 768}};
  const Published models[] = {
      {llama, "llama", 576, 30, 9, 3, 64, 1536, 49152, true, 0.135},
      {qwen2, "qwen2", 896, 24, 14, 2, 64, 4864, 151936, true, 0.494},
      {qwen2, "qwen2", 1536, 28, 12, 2, 128, 8960, 151936, true, 1.544},
      {qwen2, "qwen2", 3584, 28, 28, 4, 128, 18944, 152064, false, 7.616},
      {qwen2, "qwen2", 5120, 48, 40, 8, 128, 13824, 152064, false, 14.770},
      {qwen2, "qwen2", 5120, 64, 40, 8, 128, 27648, 152064, false, 32.764},
      {qwen2, "qwen2", 8192, 80, 64, 8, 128, 29568, 152064, false, 72.706},
      {qwen3, "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, true, 0.596},
      {qwen3, "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, false, 8.191},
      {qwen3, "qwen3", 5120, 64, 64, 8, 128, 25600, 151936, false, 32.762},
      {llama, "llama", 2048, 16, 32, 8, 64, 8192, 128256, true, 1.236},
      {llama, "llama", 4096, 32, 32, 8, 128, 14336, 128256, false, 8.030},
      {llama, "llama", 8192, 80, 64, 8, 128, 28672, 128256, false, 70.554},
      {"MistralForCausalLM", "mistral", 4096, 32, 32, 8, 128, 14336, 32768, false, 7.248},
      {"MistralForCausalLM", "mistral", 5120, 40, 32, 8, 128, 14336, 131072, false, 12.248},
      {"Phi3ForCausalLM", "phi3", 3072, 32, 32, 32, 96, 8192, 32064, false, 3.821},
      {"Phi3ForCausalLM", "phi3", 5120, 40, 40, 10, 128, 17920, 100352, false, 14.660},
      {"Gemma2ForCausalLM", "gemma2", 3584, 42, 16, 8, 256, 14336, 256000, true, 9.242},
      {"Gemma2ForCausalLM", "gemma2", 4608, 46, 32, 16, 128, 36864, 256000, true, 27.227},
      {"Gemma3ForCausalLM", "gemma3_text", 5376, 62, 32, 16, 128, 21504, 262144, true, 27.009},
      {"Qwen3MoeForCausalLM", "qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, false, 30.532, 3.353,
       qwen3_moe},
      {"GptOssForCausalLM", "gpt_oss", 2880, 24, 64, 8, 64, 2880, 201088, false, 20.915, 4.187,
       gpt_oss_20b},
      {"GptOssForCausalLM", "gpt_oss", 2880, 36, 64, 8, 64, 2880, 201088, false, 116.829, 5.712,
       gpt_oss_120b},
  };
  for (const Published& model : models) {
    ModelConfig config = Parsed(ConfigOf(model));
    SCOPED_TRACE(std::string(model.architecture) + " of " + std::to_string(model.billions));
    EXPECT_EQ(std::llround(config.ParameterCount() / 1e6), std::llround(model.billions * 1e3));
    if (model.active_billions > 0) {
      EXPECT_EQ(std::llround(config.ActiveParameterCount() / 1e6),
                std::llround(model.active_billions * 1e3));
    } else {
      EXPECT_EQ(config.ActiveParameterCount(), config.ParameterCount());
    }
  }
}

TEST(ModelConfigTest, AMixtureLayerIsTheLargestUnit) {
  const json experts = {{"num_local_experts", 128}, {"num_experts_per_tok", 4}};
  ModelConfig config = Parsed(ConfigOf(
      {"GptOssForCausalLM", "gpt_oss", 2880, 36, 64, 8, 64, 2880, 201088, false, 0, 0, experts}));
  EXPECT_EQ(std::llround(config.LargestUnitParameterCount() / 1e5), 32131);  // 3213.1M
  EXPECT_TRUE(config.attention_sinks);
  EXPECT_TRUE(config.output_bias);
}

TEST(ModelConfigTest, ReadsRopeInBothForms) {
  const json llama3 = Llama()["rope_scaling"];
  ModelConfig v4 = Parsed(Llama());
  json inner = With(llama3, {{"rope_theta", 500000.0}});
  json v5_file = With(Without(Without(Llama(), "rope_scaling"), "rope_theta"),
                      {{"rope_parameters", inner}, {"dtype", "float32"}});
  ModelConfig v5 = Parsed(v5_file);
  for (const RopeConfig& rope : {v4.rope, v5.rope}) {
    EXPECT_EQ(rope.kind, RopeKind::kLlama3);
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.factor, 32.0);
    EXPECT_EQ(rope.low_frequency_factor, 1.0);
    EXPECT_EQ(rope.high_frequency_factor, 4.0);
    EXPECT_EQ(rope.original_max_positions, 8192);
  }
  EXPECT_EQ(v5.dtype, "float32");
  EXPECT_TRUE(CheckTrainable(v5).ok()) << CheckTrainable(v5);
}

TEST(ModelConfigTest, ReadsRopeDefaultsLinearAndOldSpelling) {
  json plain = Without(Without(Llama(), "rope_scaling"), "rope_theta");
  EXPECT_EQ(Parsed(plain).rope.kind, RopeKind::kDefault);
  EXPECT_EQ(Parsed(plain).rope.theta, 10000.0);
  json v5 = With(plain, {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7e5}}}});
  EXPECT_EQ(Parsed(v5).rope.theta, 7e5);
  json null_scaling = With(Llama(), {{"rope_scaling", nullptr}});
  EXPECT_EQ(Parsed(null_scaling).rope.kind, RopeKind::kDefault);
  EXPECT_EQ(Parsed(null_scaling).rope.theta, 500000.0);
  json linear = With(Llama(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  EXPECT_EQ(Parsed(linear).rope.kind, RopeKind::kLinear);
  EXPECT_EQ(Parsed(linear).rope.factor, 2.0);
  EXPECT_TRUE(CheckTrainable(Parsed(linear)).ok());
}

TEST(ModelConfigTest, ReadsRopePerLayerType) {
  json per_type = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  ModelConfig config = Parsed(With(Without(Without(Llama(), "rope_scaling"), "rope_theta"),
                                   {{"rope_parameters", per_type}}));
  EXPECT_EQ(config.rope.kind, RopeKind::kLinear);
  EXPECT_EQ(config.rope.theta, 1e6);
}

TEST(ModelConfigTest, RefusesBadRopeByName) {
  const auto scaling = [](json value) { return With(Llama(), {{"rope_scaling", value}}); };
  auto unknown = ParseModelConfig(scaling({{"rope_type", "spiral"}}).dump());
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf(scaling({{"rope_type", "spiral"}})), HasSubstr("\"spiral\""));
  EXPECT_THAT(ErrorOf(scaling({{"rope_type", "linear"}})), HasSubstr("rope_scaling.factor"));
  EXPECT_THAT(ErrorOf(scaling({{"rope_type", "linear"}, {"factor", "2"}})),
              HasSubstr("rope_scaling.factor is string, no positive number"));
  EXPECT_THAT(ErrorOf(scaling(3)), HasSubstr("rope_scaling is not an object"));
  EXPECT_THAT(ErrorOf(With(Llama(), {{"rope_parameters", {{"rope_theta", 1e4}}}})),
              HasSubstr("both rope_scaling and rope_parameters"));
  EXPECT_THAT(
      ErrorOf(With(Without(Llama(), "rope_scaling"), {{"rope_parameters", {{"rope_theta", 1e4}}}})),
      HasSubstr("rope_theta is 500000"));
  EXPECT_THAT(TrainErrorOf(scaling({{"rope_type", "linear"}, {"factor", 2}, {"beta_fast", 32}})),
              HasSubstr("rope_scaling.beta_fast"));
  EXPECT_THAT(TrainErrorOf(scaling({{"rope_type", "yarn"}, {"factor", 4}})),
              HasSubstr("RoPE of type yarn"));
}

TEST(ModelConfigTest, NamesTheKeyThatIsWrong) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings", "rms_norm_eps"}) {
    EXPECT_THAT(ErrorOf(Without(Llama(), key)), HasSubstr(std::string(key) + " is absent"));
    EXPECT_THAT(ErrorOf(With(Llama(), {{key, "x"}})), HasSubstr(key));
    EXPECT_THAT(ErrorOf(With(Llama(), {{key, 0}})), HasSubstr(key));
    EXPECT_THAT(ErrorOf(With(Llama(), {{key, -1}})), HasSubstr(key));
  }
  EXPECT_THAT(ErrorOf(With(Llama(), {{"vocab_size", 18446744073709551615u}})),
              HasSubstr("vocab_size is 18446744073709551615"));
  EXPECT_THAT(ErrorOf(With(Llama(), {{"tie_word_embeddings", "yes"}})),
              HasSubstr("tie_word_embeddings is string, neither true nor false"));
  EXPECT_THAT(ErrorOf(With(Llama(), {{"num_key_value_heads", 5}})),
              HasSubstr("no multiple of num_key_value_heads"));
  EXPECT_THAT(ErrorOf(With(Llama(), {{"hidden_size", 2050}})), HasSubstr("hidden_size"));
  EXPECT_THAT(ErrorOf(Without(Llama(), "architectures")), HasSubstr("architectures"));
  EXPECT_THAT(ErrorOf(With(Llama(), {{"model_type", "qwen2"}})), HasSubstr("model_type"));
  EXPECT_THAT(std::string(ParseModelConfig("[]").status().message()), HasSubstr("not an object"));
}

TEST(ModelConfigTest, RefusesAnUnknownArchitectureByName) {
  auto parsed = ParseModelConfig(With(Llama(), {{"architectures", {"MambaForCausalLM"}}}).dump());
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("\"MambaForCausalLM\""));
}

TEST(ModelConfigTest, BoundsSizeDepthAndTotals) {
  EXPECT_EQ(ParseModelConfig(std::string(100'000, '[')).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ErrorOf(With(Llama(), {{"note", std::string(1 << 20, 'x')}})), HasSubstr("larger"));
  json largest = With(Llama(), {{"vocab_size", 1 << 24},
                                {"hidden_size", 1 << 17},
                                {"intermediate_size", 1 << 20},
                                {"num_hidden_layers", 1 << 12},
                                {"num_attention_heads", 1 << 10},
                                {"head_dim", 1 << 12}});
  EXPECT_THAT(ErrorOf(largest), HasSubstr("too many"));
}

json Qwen2() {
  json config = Without(Without(Without(Llama(), "rope_scaling"), "attention_bias"), "mlp_bias");
  return With(config, {{"architectures", {"Qwen2ForCausalLM"}},
                       {"model_type", "qwen2"},
                       {"use_sliding_window", false},
                       {"sliding_window", 131072},
                       {"max_window_layers", 14}});
}

TEST(ModelConfigTest, WindowsThatAreSetButOffAreNoWindows) {
  ModelConfig config = Parsed(Qwen2());
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_EQ(config.window, 0);
  EXPECT_TRUE(CheckTrainable(config).ok()) << CheckTrainable(config);

  json on = With(Qwen2(), {{"use_sliding_window", true}});
  ModelConfig windowed = Parsed(on);
  EXPECT_EQ(windowed.window, 131072);
  EXPECT_FALSE(windowed.layer_uses_window[13]);
  EXPECT_TRUE(windowed.layer_uses_window[14]);
  EXPECT_THAT(TrainErrorOf(on), HasSubstr("sliding_window = 131072"));
  EXPECT_EQ(Parsed(With(on, {{"max_window_layers", 16}})).window, 0);
}

TEST(ModelConfigTest, LayerTypesDecideOverTheRule) {
  const json base = With(Qwen2(), {{"num_hidden_layers", 3}, {"use_sliding_window", true}});
  const json types = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_THAT(Parsed(With(base, {{"layer_types", types}})).layer_uses_window,
              ElementsAre(true, false, true));
  EXPECT_THAT(ErrorOf(With(base, {{"layer_types", {"full_attention"}}})),
              HasSubstr("layer_types is not a list with one entry a layer"));
  EXPECT_THAT(ErrorOf(With(base, {{"layer_types", {"full_attention", "linear_attention", "x"}}})),
              HasSubstr("layer_types[1] is \"linear_attention\""));
  EXPECT_THAT(ErrorOf(With(base, {{"layer_types", types}, {"use_sliding_window", false}})),
              HasSubstr("sliding_window is absent or off"));
}

TEST(ModelConfigTest, AlternatingFamilies) {
  Published gemma = {"Gemma3ForCausalLM", "gemma3_text", 64, 7, 4, 2, 16, 128, 100, true, 0};
  gemma.more = {{"sliding_window", 32}};
  EXPECT_THAT(Parsed(ConfigOf(gemma)).layer_uses_window,
              ElementsAre(true, true, true, true, true, false, true));
  gemma.architecture = "Gemma2ForCausalLM";
  gemma.model_type = "gemma2";
  EXPECT_THAT(Parsed(ConfigOf(gemma)).layer_uses_window,
              ElementsAre(true, false, true, false, true, false, true));
  EXPECT_EQ(Parsed(ConfigOf(gemma)).activation, "gelu_pytorch_tanh");
}

TEST(ModelConfigTest, RefusesToTrainWhatNoTemplateFollows) {
  const json cases[] = {{{"attention_dropout", 0.1}},
                        {{"mlp_bias", true}},
                        {{"attention_bias", true}},
                        {{"pretraining_tp", 2}},
                        {{"hidden_act", "gelu"}},
                        {{"partial_rotary_factor", 0.5}},
                        {{"quantization_config", {{"bits", 4}}}}};
  for (const json& change : cases) {
    EXPECT_EQ(CheckTrainable(Parsed(With(Llama(), change))).code(),
              absl::StatusCode::kUnimplemented);
    EXPECT_THAT(TrainErrorOf(With(Llama(), change)), HasSubstr(change.begin().key())) << change;
  }
  Published qwen3 = {"Qwen3ForCausalLM", "qwen3", 64, 2, 4, 2, 16, 128, 100, true, 0};
  EXPECT_THAT(TrainErrorOf(ConfigOf(qwen3)), HasSubstr("Qwen3ForCausalLM"));
}

TEST(ModelConfigTest, NeverCrashesOnDamagedText) {
  const std::string good = Qwen2().dump();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseModelConfig(good.substr(0, length)).ok()) << length;
  }
  const int seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 5'000; ++round) {
    std::string damaged = good;
    const int flips = 1 + random() % 3;
    for (int i = 0; i < flips; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    auto parsed = ParseModelConfig(damaged);
    if (parsed.ok()) {
      EXPECT_GT(parsed->ParameterCount(), 0);
      CheckTrainable(*parsed).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace megatrain
