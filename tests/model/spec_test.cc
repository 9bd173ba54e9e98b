// config.json → ModelSpec: what is read from where, and what a wrong value is told.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/arch_library.h"
#include "model/hf_config.h"
#include "model/model_spec.h"
#include "support/data.h"

namespace bl::test {
namespace {

Json tiny() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5})");
}

ModelSpec spec_of(const Json& config, const SpecOptions& options = {}) {
  return build_model_spec(ArchLibrary(), HfConfig(config, "config.json"), options);
}

std::string error_of(const Json& config) {
  try {
    spec_of(config);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

struct WrongValue {
  const char* key;
  const char* value;
  const char* message;  // a part of it
};

class WrongConfig : public testing::TestWithParam<WrongValue> {};

TEST_P(WrongConfig, NamesKeyAndValue) {
  Json config = tiny();
  config[GetParam().key] = Json::parse(GetParam().value);
  const std::string message = error_of(config);
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_NE(message.find("config.json"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Spec, WrongConfig,
    testing::Values(
        WrongValue{"hidden_size", "0", "hidden_size is 0, must be a whole number from 1"},
        WrongValue{"hidden_size", "-64", "hidden_size is -64"},
        WrongValue{"hidden_size", "64.5", "hidden_size is 64.5"},
        WrongValue{"hidden_size", "\"64\"", "hidden_size is \"64\""},
        WrongValue{"hidden_size", "1e300", "hidden_size is 1e+300"},
        WrongValue{"hidden_size", "null", "no hidden size: must have \"hidden_size\""},
        WrongValue{"hidden_size", "[64, 64]", "hidden_size is a list of 2"},
        WrongValue{"num_hidden_layers", "4294967296", "num_hidden_layers is 4294967296"},
        WrongValue{"num_attention_heads", "0", "num_attention_heads is 0"},
        WrongValue{"num_attention_heads", "3", "hidden/heads is 21.33"},
        WrongValue{"num_key_value_heads", "3", "4 attention heads cannot share 3"},
        WrongValue{"num_key_value_heads", "8", "num_key_value_heads is 8"},
        WrongValue{"head_dim", "99999999", "head_dim is 99999999"},
        WrongValue{"vocab_size", "-1", "vocab_size is -1"},
        WrongValue{"intermediate_size", "0", "intermediate_size is 0"},
        WrongValue{"max_position_embeddings", "0", "max_position_embeddings is 0"},
        WrongValue{"rms_norm_eps", "-1", "epsilon of norms is -1"},
        WrongValue{"rms_norm_eps", "\"x\"", "rms_norm_eps is \"x\", must be a finite number"},
        WrongValue{"hidden_act", "\"softish\"", "activation \"softish\" is unknown"},
        WrongValue{"rope_theta", "0", "rope_theta is 0, must be a number above 1"},
        WrongValue{"rope_scaling", "[]", "rope_scaling is a JSON array"},
        WrongValue{"rope_scaling", R"({"type": "magic"})", "must be one of default, linear"},
        WrongValue{"rope_scaling", R"({"type": "linear"})", "no \"factor\""},
        WrongValue{"rope_scaling", R"({"type": "linear", "factor": 0})",
                   "rope_scaling.factor is 0"},
        WrongValue{"rope_scaling", R"({"type": "longrope", "long_factor": [1], "short_factor": 1})",
                   "must be a list of 8 numbers"},
        WrongValue{"rope_scaling",
                   R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                       "high_freq_factor": 1, "original_max_position_embeddings": 32})",
                   "high_freq_factor is 1, must be more than"},
        WrongValue{"eos_token_id", "[1, \"a\"]", "eos_token_id holds \"a\""},
        WrongValue{"architectures", "[]", "nor \"model_type\" says what model this is"},
        WrongValue{"architectures", "3", "must be a list"},
        WrongValue{"architectures", "[\"LlamaForCausalML\"]", "LlamaForCausalLM"}));

TEST(Spec, ShareThatRotatesIsChecked) {
  Json config = tiny();
  config["architectures"] = {"PhiForCausalLM"};
  config["partial_rotary_factor"] = 7;
  EXPECT_NE(error_of(config).find("would rotate"), std::string::npos) << error_of(config);
}

TEST(Spec, UnknownArchitectureNamesItsFamily) {
  Json config = tiny();
  config["architectures"] = {"Qwen3MoEForCausalLM"};
  const std::string message = error_of(config);
  EXPECT_NE(message.find("known of its family are Qwen3MoeForCausalLM, Qwen3"), std::string::npos)
      << message;
  EXPECT_NE(message.find("--archs"), std::string::npos) << message;
}

// As transformers' AutoModelForCausalLM chooses.
TEST(Spec, ModelTypeDecidesWhereTheClassIsMissingOrUnknown) {
  Json config = tiny();
  config["model_type"] = "qwen3";
  EXPECT_EQ(spec_of(config).architecture, "LlamaForCausalLM");  // a known class wins
  for (const Json& classes :
       {Json(nullptr), Json::array(), Json{"Qwen3Model"}, Json{"Qwen3ForSequenceClassification"}}) {
    config["architectures"] = classes;
    EXPECT_EQ(spec_of(config).architecture, "Qwen3ForCausalLM") << classes.dump();
    EXPECT_TRUE(spec_of(config).blocks[0].attention->q_norm);
  }
  config.erase("architectures");
  EXPECT_EQ(spec_of(config).architecture, "Qwen3ForCausalLM");
  config["model_type"] = "nobody";
  EXPECT_NE(error_of(config).find("model_type \"nobody\" is unknown"), std::string::npos);
  config["architectures"] = {"NobodyForCausalLM"};
  EXPECT_NE(error_of(config).find("NobodyForCausalLM\" is unknown"), std::string::npos);
  // A class that comes as code with the checkpoint may compute something else.
  config["model_type"] = "qwen3";
  config["auto_map"] = {{"AutoModelForCausalLM", "modeling_nobody.NobodyForCausalLM"}};
  EXPECT_NE(error_of(config).find("NobodyForCausalLM\" is unknown"), std::string::npos);
}

// Every architecture of transformers can be found by its model_type, and each by one only.
TEST(Spec, ModelTypesAreNotInherited) {
  const ArchLibrary library;
  std::map<std::string, std::string> owners;
  for (const std::string& name : library.names()) {
    const Json& document = *library.document(name);
    if (!document.contains("model_types")) continue;
    for (const Json& type : document["model_types"]) {
      const auto [it, added] = owners.emplace(type.get<std::string>(), name);
      EXPECT_TRUE(added) << type << ": " << name << " and " << it->second;
      const HfConfig config({{"model_type", type}}, "config.json");
      EXPECT_EQ(library.find(config).spec.name, name);
    }
  }
  EXPECT_GE(owners.size(), 60u);
}

TEST(Spec, UnknownArchitectureNamesTheFile) {
  Json config = tiny();
  config["architectures"] = {"NobodyForCausalLM"};
  try {
    build_model_spec(ArchLibrary(), HfConfig(config, "/models/mine/config.json"), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("/models/mine/config.json: architecture"), 0u) << e.what();
  }
}

// An empty list of exceptions says something else than none: no layer is one.
TEST(Spec, SizesOfGlobalLayersFromConfigsOfAllVersions) {
  Json config = tiny();
  config["architectures"] = {"Gemma4ForCausalLM"};
  config["hidden_size_per_layer_input"] = 0;  // its class has 256 where the key is absent
  config["head_dim"] = 16;
  config["layer_types"] = {"sliding_attention", "full_attention"};
  const auto head_dim = [](const Json& json) {
    return spec_of(json).blocks[1].attention->head_dim;
  };
  EXPECT_EQ(head_dim(config), 512);
  config["global_head_dim"] = 32;
  EXPECT_EQ(head_dim(config), 32);
  config["per_layer_config"] = Json::object();
  EXPECT_EQ(head_dim(config), 16);
  config["per_layer_config"]["1"] = {{"head_dim", 64}, {"num_key_value_heads", 1}};
  EXPECT_EQ(head_dim(config), 64);
  EXPECT_EQ(spec_of(config).blocks[1].attention->kv_heads, 1);
  EXPECT_EQ(spec_of(config).blocks[0].attention->head_dim, 16);
  config["use_bidirectional_attention"] = "vision";
  EXPECT_EQ(head_dim(config), 64);
  config["use_bidirectional_attention"] = "all";
  EXPECT_NE(error_of(config).find("tokens that see later ones"), std::string::npos)
      << error_of(config);
}

TEST(Spec, ExpertsBesideADenseLayerNeedTheirNumbers) {
  Json config = tiny();
  config["architectures"] = {"Gemma4ForCausalLM"};
  config["hidden_size_per_layer_input"] = 0;  // its class has 256 where the key is absent
  config["enable_moe_block"] = true;
  config["num_experts"] = 8;
  config["moe_intermediate_size"] = 32;
  EXPECT_NE(error_of(config).find("no experts of a token: must have \"top_k_experts\""),
            std::string::npos)
      << error_of(config);
  config["top_k_experts"] = 9;
  EXPECT_NE(error_of(config).find("top_k_experts is 9"), std::string::npos) << error_of(config);
  config["top_k_experts"] = 8;
  const BlockSpec block = spec_of(config).blocks[1];
  EXPECT_EQ(block.feed_forward->intermediate, 96);
  EXPECT_EQ(block.moe->expert.intermediate, 32);
  EXPECT_FLOAT_EQ(block.moe->router_multiplier, 0.125f);
  config["enable_moe_block"] = false;
  EXPECT_FALSE(spec_of(config).blocks[1].moe || spec_of(config).blocks[1].moe_norm);
}

// Routing of the backends holds so many and no more: a larger number must not reach them.
TEST(Spec, ExpertsBeyondRoutingAreRefused) {
  Json config = tiny();
  config["architectures"] = {"MixtralForCausalLM"};
  config["num_experts_per_tok"] = 2;
  config["num_local_experts"] = 4096;
  EXPECT_EQ(spec_of(config).blocks[0].moe->experts, 4096);
  config["num_local_experts"] = 4097;
  EXPECT_NE(error_of(config).find("num_local_experts is 4097"), std::string::npos)
      << error_of(config);
}

TEST(Spec, RopeOfBothVersionsOfConfigs) {
  Json v4 = tiny();
  v4["rope_theta"] = 500000.0;
  v4["rope_scaling"] = {{"type", "yarn"},
                        {"rope_type", "yarn"},
                        {"factor", 4.0},
                        {"original_max_position_embeddings", 32}};
  Json v5 = tiny();
  v5["rope_parameters"] = v4["rope_scaling"];
  v5["rope_parameters"]["rope_theta"] = 500000.0;
  ASSERT_EQ(spec_of(v4).ropes.size(), 1u);
  EXPECT_EQ(spec_of(v4).ropes, spec_of(v5).ropes);
  EXPECT_EQ(spec_of(v4).ropes[0].kind, RopeKind::kYarn);
}

TEST(Spec, RopeByLayerType) {
  Json config = tiny();
  config["architectures"] = {"Gemma3ForCausalLM"};
  config["num_hidden_layers"] = 6;
  config["query_pre_attn_scalar"] = 16;
  config["sliding_window"] = 8;
  config["rope_theta"] = 1e6;
  config["rope_local_base_freq"] = 1e4;
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const ModelSpec v4 = spec_of(config);
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  const ModelSpec v5 = spec_of(config);
  EXPECT_EQ(v4.ropes, v5.ropes);
  ASSERT_EQ(v4.ropes.size(), 2u);
  EXPECT_EQ(v4.blocks[0].attention->window, 8);
  EXPECT_EQ(v4.blocks[5].attention->window, 0);
  EXPECT_EQ(v4.ropes[static_cast<std::size_t>(v4.blocks[0].attention->rope)].theta, 1e4);
  EXPECT_EQ(v4.ropes[static_cast<std::size_t>(v4.blocks[5].attention->rope)].kind,
            RopeKind::kLinear);
}

TEST(Spec, OptionsOverrideTheConfig) {
  Json config = tiny();
  const ModelSpec plain = spec_of(config);
  const ModelSpec alpha = spec_of(config, {.rope_alpha = 2.0, .context = 4096});
  EXPECT_EQ(alpha.context, 4096);
  EXPECT_NEAR(alpha.ropes[0].theta, 10000.0 * std::pow(2.0, 16.0 / 14.0), 1e-6);
  const ModelSpec scaled = spec_of(config, {.rope_scale = 4.0});
  EXPECT_FLOAT_EQ(fixed_rows(scaled.ropes[0])[0].inv_freq[3] * 4.0f,
                  fixed_rows(plain.ropes[0])[0].inv_freq[3]);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(fixed_rows(spec_of(config, {.rope_scale = 4.0}).ropes[0])[0].inv_freq,
            fixed_rows(scaled.ropes[0])[0].inv_freq);
  EXPECT_THROW(spec_of(config, {.rope_scale = -1.0}), Error);
  EXPECT_THROW(spec_of(config, {.context = -1}), Error);
}

TEST(Rope, DynamicGrowsWithReachOnly) {
  Json config = tiny();
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  const RopeSpec spec = spec_of(config).ropes[0];
  const std::vector<float> base = fixed_rows(spec_of(tiny()).ropes[0])[0].inv_freq;
  EXPECT_EQ(dynamic_row(spec, 1).inv_freq, base);
  EXPECT_EQ(dynamic_row(spec, 128).inv_freq, base);
  // theta · (2 · 256/128 − 1)^(16/14)
  const double theta = 10000.0 * std::pow(3.0, 16.0 / 14.0);
  EXPECT_FLOAT_EQ(dynamic_row(spec, 256).inv_freq[4],
                  static_cast<float>(std::pow(theta, -8.0 / 16.0)));
}

TEST(Archs, EveryDocumentIsReadable) {
  const ArchLibrary archs;
  EXPECT_GE(archs.architectures().size(), 80u);
  for (const std::string& name : archs.architectures()) {
    const ArchSpec spec = archs.find(HfConfig({{"architectures", {name}}}, "config.json")).spec;
    EXPECT_FALSE(spec.head.empty()) << name;
    EXPECT_TRUE(spec.block.attention.has_value()) << name;
  }
}

// A folder given by the user, with one document of the text.
ArchLibrary library_with(const std::string& text) {
  const std::filesystem::path folder = scratch_dir("archs");
  write_file_atomically(folder / "mine.json", text);
  return ArchLibrary(folder);
}

TEST(Archs, FolderOfTheUserComesFirst) {
  const ArchLibrary archs = library_with(
      R"({"match": ["LlamaForCausalLM", "MineForCausalLM"], "extends": "llama",
          "head": {"multiplier": 0.5}})");
  EXPECT_EQ(build_model_spec(archs, HfConfig(tiny(), "config.json"), {}).head_multiplier, 0.5f);
  Json mine = tiny();
  mine["architectures"] = {"MineForCausalLM"};
  EXPECT_EQ(build_model_spec(archs, HfConfig(mine, "config.json"), {}).architecture,
            "MineForCausalLM");
}

TEST(Archs, MistakesAreErrors) {
  const auto error = [](const std::string& text) {
    try {
      Json mine = tiny();
      mine["architectures"] = {"MineForCausalLM"};
      library_with(text).find(HfConfig(mine, "config.json"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error(R"({"match": ["MineForCausalLM"], "extends": "llama", "hed": {}})")
                .find("unknown key \"hed\""),
            std::string::npos);
  EXPECT_NE(error(R"({"match": ["MineForCausalLM"], "extends": "mistral"})").find("only one step"),
            std::string::npos);
  EXPECT_NE(error(R"({"match": ["MineForCausalLM"], "extends": "nobody"})").find("no document"),
            std::string::npos);
  EXPECT_NE(error(R"({"match": ["MineForCausalLM"], "extends": "llama",
                      "block": {"attention": {"rope": {"style": "sideways"}}}})")
                .find("must be one of \"neox\""),
            std::string::npos);
  EXPECT_NE(error(R"({"match": ["MineForCausalLM"], "extends": "llama",
                      "block": {"attention": {"scale": {"unless": 1}}}})")
                .find("is no value"),
            std::string::npos);
}

TEST(Archs, SizesInACircleAreAnError) {
  const ArchLibrary archs = library_with(
      R"({"match": ["MineForCausalLM"], "extends": "llama",
          "sizes": {"heads": "=kv_heads", "kv_heads": "=heads"}})");
  Json mine = tiny();
  mine["architectures"] = {"MineForCausalLM"};
  try {
    build_model_spec(archs, HfConfig(mine, "config.json"), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("in a circle"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace bl::test
