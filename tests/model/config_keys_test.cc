// No key of config.json is dropped silently, and an absent key means what transformers' config
// class says.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/arch_library.h"
#include "model/config_keys.h"
#include "model/hf_config.h"
#include "model/model_spec.h"

namespace bl::test {
namespace {

using Keys = std::vector<std::string>;

// A config without anything that the class of its architecture has a default for.
Json small(const char* architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"vocab_size", 100},
          {"num_key_value_heads", 4},
          {"intermediate_size", 96},
          {"max_position_embeddings", 128}};
}

ModelSpec built(const Json& config) {
  return build_model_spec(ArchLibrary(), HfConfig(config, "config.json"), {});
}

std::string refusal_of(const Json& config) {
  try {
    built(config);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ConfigKeys, UnknownOnesAreNamed) {
  Json config = small("LlamaForCausalLM");
  EXPECT_EQ(built(config).unknown_keys, Keys{});
  config["made_up"] = 3;
  config["rope_parameters"] = {
      {"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e4}, {"made_up", 1}};
  config["quantization_config"] = {{"bits", 4}, {"quant_method", "gptq"}, {"made_up", {1, 2}}};
  config["made_up_object"] = {{"a", 1}};
  EXPECT_EQ(built(config).unknown_keys,
            (Keys{"made_up", "made_up_object", "quantization_config.made_up",
                  "rope_parameters.made_up"}));
}

// Other types of scaling read other parameters.
TEST(ConfigKeys, ParametersOfAnotherRopeAreUnknown) {
  Json config = small("LlamaForCausalLM");
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}};
  EXPECT_EQ(built(config).unknown_keys, Keys{"rope_scaling.beta_fast"});
}

TEST(ConfigKeys, KeysWithoutEffectAreNotNamed) {
  Json config = small("LlamaForCausalLM");
  config["attention_dropout"] = 0.5;
  config["initializer_range"] = 0.1;
  config["transformers_version"] = "5.24.0";
  config["torch_dtype"] = "float16";
  config["_name_or_path"] = "x";
  config["use_cache"] = false;
  config["bos_token_id"] = 1;
  config["image_token_id"] = 5;
  config["vision_config"] = {{"hidden_size", 3}};
  EXPECT_EQ(built(config).unknown_keys, Keys{});
}

TEST(ConfigKeys, NullsAreNotNamed) {
  Json config = small("LlamaForCausalLM");
  config["made_up"] = nullptr;
  EXPECT_EQ(built(config).unknown_keys, Keys{});
}

// No layer slides, so nothing reads the parameters of layers that do.
TEST(ConfigKeys, ParametersOfATypeThatNoLayerHasAreNotNamed) {
  Json config = small("Gemma3ForCausalLM");
  config["layer_types"] = {"full_attention", "full_attention", "full_attention", "full_attention"};
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
      {"made_up", {{"rope_type", "default"}}}};
  EXPECT_EQ(built(config).unknown_keys, Keys{"rope_parameters.made_up"});
}

TEST(ConfigKeys, NestedConfigsHaveTheKeysThatEveryConfigHas) {
  Json config = small("DbrxForCausalLM");
  config.erase("intermediate_size");
  config["attn_config"] = {{"kv_n_heads", 2}, {"torch_dtype", "float16"}, {"made_up", 1}};
  EXPECT_EQ(built(config).unknown_keys, Keys{"attn_config.made_up"});
}

TEST(ConfigKeys, TheWarningIsOneLineWhateverAKeyHolds) {
  Json config = small("LlamaForCausalLM");
  config["a\nb"] = 1;
  config["made_up"] = 1;
  const ModelSpec spec = built(config);
  testing::internal::CaptureStderr();
  warn_of_unknown_keys(spec);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("which are ignored: \"a\\nb\", made_up\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
}

TEST(ConfigKeys, TextModelsOfCompositeConfigs) {
  Json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                 {"text_config", small("Gemma3ForCausalLM")}};
  config["text_config"]["made_up"] = 1;
  config["made_up"] = 2;
  EXPECT_EQ(built(config).unknown_keys, (Keys{"made_up", "text_config.made_up"}));
}

TEST(ConfigKeys, OptionsOfTheClassThatNothingReadsAreRefused) {
  Json config = small("BloomForCausalLM");
  config["apply_residual_connection_post_layernorm"] = false;
  EXPECT_EQ(refusal_of(config), "no error");
  config["apply_residual_connection_post_layernorm"] = nullptr;  // false, as in Python
  EXPECT_EQ(refusal_of(config), "no error");
  config["apply_residual_connection_post_layernorm"] = true;
  EXPECT_NE(
      refusal_of(config).find("config.json: apply_residual_connection_post_layernorm is true"),
      std::string::npos)
      << refusal_of(config);
}

// Where sizes do not fit each other, an absent key is a likely reason.
TEST(ConfigKeys, MessagesAboutSizesNameTheKeysThatAreAbsent) {
  Json config = small("LlamaForCausalLM");
  config.erase("num_attention_heads");
  config["hidden_size"] = 32;
  EXPECT_NE(refusal_of(config).find("; absent keys have the defaults of LlamaForCausalLM: "
                                    "num_attention_heads 32"),
            std::string::npos)
      << refusal_of(config);
  config["num_attention_heads"] = 32;
  EXPECT_NE(refusal_of(config), "no error");
  EXPECT_EQ(refusal_of(config).find("absent keys"), std::string::npos) << refusal_of(config);
}

TEST(ConfigKeys, MessagesAboutSizesNameTheKeysThatHaveThem) {
  const HfConfig::Sizes sizes{.given = {{"num_experts", 8}, {"vocab_size", 80}},
                              .absent = {{"bos_token_id", 1}, {"head_dim", 4}}};
  EXPECT_EQ(note_of_sizes(sizes, "X", "4 columns (fp32), but the configuration says 8"),
            "; config.json says num_experts 8; absent keys have the defaults of X: head_dim 4");
  EXPECT_EQ(
      note_of_sizes({.given = sizes.given, .absent = {}}, "X", "88 [80, 18446744073709551616]"),
      "; config.json says vocab_size 80");
}

TEST(ConfigKeys, ANullDeniesABias) {
  Json config = small("FalconForCausalLM");
  config["bias"] = true;
  EXPECT_EQ(built(config).denied_biases[0].projections, "");
  config["bias"] = nullptr;
  EXPECT_EQ(built(config).denied_biases[0].projections, "bias");
  config.erase("bias");
  EXPECT_EQ(built(config).denied_biases[0].projections, "bias");
}

TEST(ConfigKeys, OtherWordsForADefaultAreNotRefused) {
  Json config = small("MptForCausalLM");
  config["norm_type"] = "layernorm";
  EXPECT_EQ(refusal_of(config), "no error");
  config["norm_type"] = "rmsnorm";
  EXPECT_NE(refusal_of(config).find("norm_type is \"rmsnorm\""), std::string::npos)
      << refusal_of(config);
}

TEST(ConfigKeys, BidirectionalAttentionIsRefusedEverywhere) {
  const ArchLibrary archs;
  for (const std::string& architecture : archs.architectures()) {
    Json config = small(architecture.c_str());
    config["is_causal"] = false;
    if (archs.find(HfConfig(config, "config.json")).spec.draft) continue;
    EXPECT_NE(refusal_of(config).find("is_causal is false"), std::string::npos)
        << architecture << ": " << refusal_of(config);
    config["is_causal"] = true;
    EXPECT_EQ(refusal_of(config).find("is_causal"), std::string::npos) << architecture;
  }
}

TEST(ConfigKeys, AbsentKeysHaveTheDefaultsOfTheirClass) {
  EXPECT_FLOAT_EQ(built(small("Phi3ForCausalLM")).final_norm->eps, 1e-5f);
  EXPECT_FLOAT_EQ(built(small("LlamaForCausalLM")).final_norm->eps, 1e-6f);
  EXPECT_EQ(built(small("Qwen3ForCausalLM")).blocks[0].attention->head_dim, 128);
  EXPECT_EQ(built(small("LlamaForCausalLM")).blocks[0].attention->head_dim, 16);
  EXPECT_EQ(built(small("GemmaForCausalLM")).blocks[0].attention->head_dim, 256);
  Json config = small("LlamaForCausalLM");
  config.erase("num_key_value_heads");
  EXPECT_EQ(built(config).blocks[0].attention->kv_heads, 4);
}

// No class of transformers says what a GGUF file means that lacks a key.
TEST(ConfigKeys, GgufHasNoClass) {
  HfConfig config(small("Qwen3ForCausalLM"), "model.gguf");
  config.forget_class_options();
  const ModelSpec spec = build_model_spec(ArchLibrary(), config, {});
  EXPECT_EQ(spec.blocks[0].attention->head_dim, 16);
  // An architecture's own defaults hold for every file.
  HfConfig falcon(small("FalconForCausalLM"), "model.gguf");
  falcon.forget_class_options();
  EXPECT_EQ(build_model_spec(ArchLibrary(), falcon, {}).blocks[0].attention->kv_heads, 1);
}

TEST(ConfigKeys, NullIsNotTheDefault) {
  Json config = small("NanoChatForCausalLM");
  EXPECT_FLOAT_EQ(built(config).head_softcap, 15.0f);
  config["final_logit_softcapping"] = nullptr;
  EXPECT_FLOAT_EQ(built(config).head_softcap, 0.0f);
}

TEST(ConfigKeys, OtherNamesOfAnOption) {
  Json config = small("GPT2LMHeadModel");
  config.erase("intermediate_size");
  config.erase("num_key_value_heads");
  config["n_positions"] = 64;
  config.erase("max_position_embeddings");
  EXPECT_EQ(built(config).max_positions, 64);
  EXPECT_EQ(built(config).unknown_keys, Keys{});
  // In transformers the other name is set last.
  config["max_position_embeddings"] = 32;
  EXPECT_EQ(built(config).max_positions, 32);
}

TEST(ConfigKeys, NamesThatOnlyTheClassKnows) {
  Json config = small("Ernie4_5_MoeForCausalLM");
  config["moe_k"] = 2;
  config["num_experts_per_tok"] = 1;
  const ModelSpec spec = built(config);
  EXPECT_EQ(spec.blocks.back().moe->per_token, 1);
  EXPECT_EQ(spec.unknown_keys, Keys{});
}

TEST(ConfigKeys, WithoutAClassTheKeysMeanWhatTheySay) {
  Json config = small("OrionForCausalLM");
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(built(config).ropes[0].rotated, 8);
  config["architectures"] = {"LlamaForCausalLM"};
  EXPECT_EQ(built(config).ropes[0].rotated, 16);  // the class ignores it
}

// Entries for layers that the model does not have are no unknown keys.
TEST(ConfigKeys, EntriesForMoreLayers) {
  Json config = small("HYV3ForCausalLM");
  config["mlp_layer_types"] = {"dense", "sparse", "sparse", "sparse", "sparse"};
  EXPECT_EQ(built(config).unknown_keys, Keys{});
  config = small("Step3p7ForConditionalGeneration");
  config["moe_num_experts"] = 4;
  config["moe_top_k"] = 2;
  config["moe_intermediate_size"] = 16;
  config["share_expert_dim"] = 16;
  config["per_layer_config"] = {{"7", {{"num_attention_heads", 4}, {"made_up", 1}}}};
  const Keys unknown = built(config).unknown_keys;
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), "per_layer_config.7.made_up"), 1);
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), "per_layer_config.7.num_attention_heads"),
            0);
}

TEST(ConfigKeys, KindsOfTextModels) {
  Json config = {{"architectures", {"LlavaForConditionalGeneration"}},
                 {"text_config", small("LlamaForCausalLM")}};
  EXPECT_EQ(built(config).blocks[0].attention->window, 0);
  config["text_config"]["model_type"] = "mistral";
  EXPECT_EQ(built(config).blocks[0].attention->window, 4096);
  config["text_config"]["model_type"] = "gemma";
  EXPECT_NE(refusal_of(config).find("text_config.model_type is \"gemma\""), std::string::npos)
      << refusal_of(config);
}

TEST(ConfigKeys, RopeScalingTakesThePlaceOfRopeParameters) {
  Json config = small("Qwen3ForCausalLM");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(built(config).ropes[0].kind, RopeKind::kLinear);
  EXPECT_EQ(built(config).ropes[0].theta, 10000.0);  // what transformers makes of it
  EXPECT_EQ(built(config).unknown_keys,
            (Keys{"rope_parameters.rope_theta", "rope_parameters.rope_type"}));
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(built(config).ropes[0].theta, 5e5);
}

std::vector<int> windows_of(const Json& config) {
  std::vector<int> windows;
  for (const BlockSpec& block : built(config).blocks) windows.push_back(block.attention->window);
  return windows;
}

TEST(ConfigKeys, WindowsFollowTheClassWhereTypesAreNotListed) {
  Json smollm = small("SmolLM3ForCausalLM");
  smollm["use_sliding_window"] = true;
  smollm["sliding_window"] = 8;
  EXPECT_EQ(windows_of(smollm), (std::vector<int>{0, 0, 0, 8}));
  smollm["no_rope_layers"] = {0, 1, 0, 1};
  EXPECT_EQ(windows_of(smollm), (std::vector<int>{8, 0, 8, 0}));
  Json qwen = small("Qwen2MoeForCausalLM");
  qwen["use_sliding_window"] = true;
  qwen["sliding_window"] = 8;
  qwen["max_window_layers"] = 3;
  EXPECT_EQ(windows_of(qwen), (std::vector<int>{8, 0, 8, 0}));
  qwen["max_window_layers"] = 2;
  EXPECT_EQ(windows_of(qwen), (std::vector<int>{8, 0, 0, 0}));
  Json cohere = small("Cohere2ForCausalLM");
  cohere["sliding_window"] = 8;
  EXPECT_EQ(windows_of(cohere), (std::vector<int>{8, 8, 8, 0}));
}

TEST(ConfigKeys, Patterns) {
  EXPECT_TRUE(matches_pattern("hidden_dropout", "*dropout"));
  EXPECT_TRUE(matches_pattern("bos_token_id", "*_token_id"));
  EXPECT_FALSE(matches_pattern("bos_token_ids", "*_token_id"));
  EXPECT_TRUE(matches_pattern("a.7.b", "a.*.b"));
  EXPECT_FALSE(matches_pattern("a", "a.*"));
  EXPECT_TRUE(matches_pattern("a", "a*"));
}

}  // namespace
}  // namespace bl::test
