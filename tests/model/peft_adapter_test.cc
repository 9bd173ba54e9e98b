// Adapter folders that are wrong, in every way that was thought of: each is one line that names the
// file, the key or tensor, what was found and what would be right.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "model/adapter_files.h"
#include "model/golden.h"
#include "model/peft_adapter.h"
#include "model/peft_config.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
const std::string kA = std::string("base_model.model.") + kQ + ".lora_A.weight";
const std::string kB = std::string("base_model.model.") + kQ + ".lora_B.weight";

// The sites of a golden model: hidden 64, heads 2 × 32, one kv head, intermediate 128, 256 tokens.
class Target {
 public:
  explicit Target(const std::string& name = "hf-tiny/llama")
      : backend_(open_backend("ref", {})),
        loader_(*backend_,
                open_model_folder(golden_folder(name.substr(0, name.find('/'))) /
                                  name.substr(name.find('/') + 1)),
                {}) {}
  PeftAdapter read(const fs::path& folder) const {
    return read_peft_adapter(folder, loader_.adapter_sites(),
                             CheckpointNames(*loader_.spec().arch));
  }
  PeftAdapter read(const AdapterFiles& files) const {
    const fs::path folder = scratch_dir("adapter");
    files.write(folder);
    return read(folder);
  }

 private:
  std::unique_ptr<Backend> backend_;
  ModelLoader loader_;
};

// Why an adapter is not taken; nothing where it is.
std::pair<ErrorCode, std::string> refusal_of(const Target& target, const AdapterFiles& files) {
  try {
    target.read(files);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  ADD_FAILURE() << "was taken";
  return {};
}

AdapterFiles good() {
  AdapterFiles files;
  files.add(kQ, {64, 64});
  files.add("model.layers.1.mlp.down_proj", {128, 64});
  return files;
}

struct Wrong {
  const char* what;
  ErrorCode code;
  std::function<void(AdapterFiles&)> spoil;
  std::vector<std::string> says;
};

std::function<void(AdapterFiles&)> set(const char* key, const OrderedJson& value) {
  return [key, value](AdapterFiles& files) { files.config[key] = value; };
}
std::function<void(AdapterFiles&)> rename(const std::string& from, const std::string& to) {
  return [from, to](AdapterFiles& files) {
    files.tensors[to] = files.tensors.at(from);
    files.tensors.erase(from);
  };
}
std::function<void(AdapterFiles&)> add(const std::string& name, const Shape& shape) {
  return [name, shape](AdapterFiles& files) {
    files.tensors[name] = {shape, std::vector<float>(static_cast<std::size_t>(shape.elements()))};
  };
}
void reshape(AdapterTensor& tensor, const Shape& shape) {
  tensor.shape = shape;
  tensor.values.resize(static_cast<std::size_t>(shape.elements()));
}

std::vector<Wrong> wrong_configs() {
  const auto bad = ErrorCode::kInvalidFile;
  const auto no = ErrorCode::kUnsupported;
  const OrderedJson list = OrderedJson::array({"lm_head"});
  return {
      {"no kind", bad, [](AdapterFiles& f) { f.config.erase("peft_type"); }, {"peft_type", "LORA"}},
      {"LoHa", no, set("peft_type", "LOHA"), {"peft_type", "LOHA", "only \"LORA\""}},
      {"LoKr", no, set("peft_type", "LOKR"), {"peft_type", "LOKR"}},
      {"IA3", no, set("peft_type", "IA3"), {"peft_type", "IA3"}},
      {"prompt tuning", no, set("peft_type", "PROMPT_TUNING"), {"peft_type", "PROMPT_TUNING"}},
      {"kind a number", bad, set("peft_type", 3), {"peft_type"}},
      {"DoRA", no, set("use_dora", true), {"use_dora", "DoRA"}},
      {"QA-LoRA", no, set("use_qalora", true), {"use_qalora"}},
      {"bias all", no, set("bias", "all"), {"bias", "all", "none"}},
      {"bias lora_only", no, set("bias", "lora_only"), {"bias", "lora_only"}},
      {"bias a list", no, set("bias", list), {"bias"}},
      {"lora_bias", no, set("lora_bias", true), {"lora_bias"}},
      {"modules_to_save a text",
       bad,
       set("modules_to_save", "lm_head"),
       {"modules_to_save", "list of names"}},
      {"modules_to_save of numbers",
       bad,
       set("modules_to_save", OrderedJson::array({1})),
       {"modules_to_save", "list of names"}},
      {"replication",
       no,
       set("layer_replication", OrderedJson::array({{0, 1}, {0, 2}})),
       {"layer_replication"}},
      {"token rows",
       no,
       set("trainable_token_indices", OrderedJson::array({1})),
       {"trainable_token_indices"}},
      {"parameters", no, set("target_parameters", list), {"target_parameters"}},
      {"aLoRA",
       no,
       set("alora_invocation_tokens", OrderedJson::array({1})),
       {"alora_invocation_tokens"}},
      {"PiSSA", no, set("init_lora_weights", "pissa_niter_16"), {"init_lora_weights", "pissa"}},
      {"LoftQ", no, set("init_lora_weights", "loftq"), {"init_lora_weights"}},
      {"no rank", bad, [](AdapterFiles& f) { f.config.erase("r"); }, {": r,"}},
      {"rank 0", bad, set("r", 0), {"r is '0'", "1 … 4096"}},
      {"rank negative", bad, set("r", -4), {"r is '-4'"}},
      {"rank huge", bad, set("r", 1'000'000'000'000), {"r is '1000000000000'", "4096"}},
      {"rank 2^64", bad, set("r", 18446744073709551615u), {"r is"}},
      {"rank a fraction", bad, set("r", 4.5), {"r is '4.5'"}},
      {"rank a text", bad, set("r", "4"), {"r is"}},
      {"rank a list", bad, set("r", list), {"r is"}},
      {"no alpha", bad, [](AdapterFiles& f) { f.config.erase("lora_alpha"); }, {"lora_alpha"}},
      {"alpha a text", bad, set("lora_alpha", "8"), {"lora_alpha", "finite number"}},
      {"alpha huge", bad, set("lora_alpha", 1e300), {"lora_alpha"}},
      {"rslora a text", bad, set("use_rslora", "yes"), {"use_rslora", "true or false"}},
      {"rules a list", bad, set("rank_pattern", list), {"rank_pattern", "object"}},
      {"rule of rank 0", bad, set("rank_pattern", {{"q_proj", 0}}), {"q_proj", "rank"}},
      {"rule of a text", bad, set("alpha_pattern", {{"q_proj", "a"}}), {"q_proj"}},
      {"rule that is no pattern",
       bad,
       set("rank_pattern", {{"(q_proj", 4}}),
       {"rank_pattern", "("}},
      {"rule with look-ahead", no, set("rank_pattern", {{"(?!a)q", 4}}), {"rank_pattern", "group"}},
      {"targets a number", bad, set("target_modules", 3), {"target_modules"}},
      {"targets of numbers",
       bad,
       set("target_modules", OrderedJson::array({1})),
       {"target_modules"}},
      {"layers a text", bad, set("layers_to_transform", "all"), {"layers_to_transform"}},
      {"a list", bad, [](AdapterFiles& f) { f.config = OrderedJson::array(); }, {"JSON object"}},
  };
}

std::vector<Wrong> wrong_tensors() {
  const auto bad = ErrorCode::kInvalidFile;
  const auto no = ErrorCode::kUnsupported;
  const std::string at = "base_model.model.";
  const auto spoil_value = [](float value) {
    return [value](AdapterFiles& f) { f.tensors.at(kB).values[7] = value; };
  };
  return {
      {"nothing", bad, [](AdapterFiles& f) { f.tensors.clear(); }, {"lora_A.weight"}},
      {"no B", bad, [](AdapterFiles& f) { f.tensors.erase(kB); }, {kA, "lora_B"}},
      {"no A", bad, [](AdapterFiles& f) { f.tensors.erase(kA); }, {kB, "lora_A"}},
      {"a module that is not there",
       bad,
       [](AdapterFiles& f) {
         f.add("model.layers.7.self_attn.q_proj", {64, 64});
       },
       {"model.layers.7.self_attn.q_proj", "has no module", "it has", "self_attn.q_proj"}},
      {"a norm",
       bad,
       [](AdapterFiles& f) {
         f.add("model.norm", {64, 64});
       },
       {"model.norm"}},
      {"rank is another", bad, set("r", 8), {kA, "[4, 64]", "[8, 64]", "rank"}},
      {"input is another",
       bad,
       [](AdapterFiles& f) {
         reshape(f.tensors[kA], {4, 63});
       },
       {kA, "[4, 63]", "[4, 64]"}},
      {"output is another",
       bad,
       [](AdapterFiles& f) {
         reshape(f.tensors[kB], {65, 4});
       },
       {kB, "[65, 4]", "[64, 4]"}},
      {"B of another rank",
       bad,
       [](AdapterFiles& f) {
         reshape(f.tensors[kB], {64, 2});
       },
       {kB, "[64, 2]", "[64, 4]"}},
      {"turned round",
       bad,
       [](AdapterFiles& f) {
         reshape(f.tensors[kA], {64, 4});
       },
       {kA}},
      {"one dimension", bad, [](AdapterFiles& f) { reshape(f.tensors[kA], {256}); }, {kA}},
      {"of integers", bad, [](AdapterFiles& f) { f.tensors[kA].dtype = DType::kI32; }, {kA, "F32"}},
      {"rank beyond the model",
       bad,
       [](AdapterFiles& f) {
         f.config["r"] = 200;
         f.tensors.clear();
         f.add(kQ, {64, 64, 200});
       },
       {kA, "200", "128"}},
      {"NaN", bad, spoil_value(NAN), {kB, "NaN"}},
      {"infinity", bad, spoil_value(INFINITY), {kB, "infinite"}},
      {"DoRA's tensor", no, add(at + kQ + ".lora_magnitude_vector", {64}), {"DoRA"}},
      {"a bias of B", no, add(at + kQ + ".lora_B.bias", {64}), {"lora_B.bias", "bias"}},
      {"LoHa's tensor", no, add(at + kQ + ".hada_w1_a", {4, 64}), {"hada_w1_a", "lora_A.weight"}},
      {"IA3's tensor", no, add(at + kQ + ".ia3_l", {64, 1}), {"ia3_l"}},
      {"a whole norm", no, add(at + "model.norm.weight", {64}), {"model.norm", "whole"}},
      {"a whole linear", no, add(at + kQ + ".weight", {64, 64}), {kQ, "whole", "head"}},
      {"a whole head of more rows",
       no,
       add(at + "lm_head.weight", {260, 64}),
       {"[260, 64]", "[256, 64]", "vocabulary"}},
      {"a whole head of NaN",
       bad,
       [](AdapterFiles& f) {
         f.add_whole("lm_head", {256, 64});
         f.tensors.at("base_model.model.lm_head.weight").values[77] = NAN;
       },
       {"lm_head.weight", "NaN"}},
      {"a saved head that is not there",
       bad,
       set("modules_to_save", OrderedJson::array({"lm_head"})),
       {"modules_to_save", "lm_head", "holds no tensor"}},
      {"one of two saved modules",
       bad,
       [](AdapterFiles& f) {
         f.add_whole("lm_head", {256, 64});
         f.config["modules_to_save"].push_back("score");
       },
       {"modules_to_save", "score"}},
      {"a whole head twice",
       bad,
       [](AdapterFiles& f) {
         f.add_whole("lm_head", {256, 64});
         f.tensors["base_model.model.lm_head.modules_to_save.weight"] =
             f.tensors.at("base_model.model.lm_head.weight");
       },
       {"same module"}},
      {"an unknown ending", no, rename(kA, kA + "s"), {"lora_A.weights", "end in"}},
      {"a grown vocabulary",
       no,
       add(at + "model.embed_tokens.base_layer.weight", {260, 64}),
       {"[260, 64]", "[256, 64]", "vocabulary"}},
      {"twice", bad, add(at + kQ + ".lora_A.default.weight", {4, 64}), {"same module"}},
      {"an embedding as a linear",
       bad,
       [](AdapterFiles& f) {
         f.add("model.embed_tokens", {256, 64});
       },
       {"model.embed_tokens", "lora_embedding_A"}},
      {"a linear as an embedding",
       bad,
       [](AdapterFiles& f) {
         f.add_embedding(kQ, {64, 64});
       },
       {kQ, "lora_A"}},
      {"an embedding of other rows",
       bad,
       [](AdapterFiles& f) {
         f.add_embedding("model.embed_tokens", {255, 64});
       },
       {"[4, 255]", "[4, 256]"}},
      {"other targets",
       bad,
       set("target_modules", OrderedJson::array({"k_proj", "down_proj"})),
       {kA, "target_modules"}},
      {"half a name as a target",
       bad,
       set("target_modules", OrderedJson::array({"proj", "down_proj"})),
       {kA, "target_modules"}},
      {"other layers",
       bad,
       set("layers_to_transform", OrderedJson::array({1})),
       {kA, "layers_to_transform"}},
  };
}

void check_all(const std::vector<Wrong>& all) {
  const Target target;
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.what);
    AdapterFiles files = good();
    wrong.spoil(files);
    try {
      target.read(files);
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code(), wrong.code) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      EXPECT_NE(text.find("adapter"), std::string::npos) << text;
      for (const std::string& part : wrong.says) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
      }
    }
  }
}

TEST(PeftAdapter, WrongConfigsAreNamed) { check_all(wrong_configs()); }
TEST(PeftAdapter, WrongTensorsAreNamed) { check_all(wrong_tensors()); }

TEST(PeftAdapter, WrongFoldersAreNamed) {
  const Target target;
  const fs::path folder = scratch_dir("adapter-folder");
  const auto message = [&](const fs::path& path) {
    try {
      target.read(path);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(folder / "none").find("no such folder"), std::string::npos);
  EXPECT_NE(message(folder).find("adapter_config.json"), std::string::npos);
  good().write(folder);
  EXPECT_EQ(message(folder), "");
  const std::string weights = read_file(folder / "adapter_model.safetensors");
  fs::remove(folder / "adapter_model.safetensors");
  EXPECT_NE(message(folder).find("adapter_model.safetensors"), std::string::npos);
  write_file_atomically(folder / "adapter_model.bin", "pickle");
  EXPECT_NE(message(folder).find("pickle"), std::string::npos);
  write_file_atomically(folder / "adapter_model.safetensors",
                        std::string_view(weights).substr(0, weights.size() / 2));
  EXPECT_NE(message(folder).find("adapter_model.safetensors"), std::string::npos);
  for (const char* text : {"", "{", "[[[", "{\"r\": 1e999}", "\xff\xfe"}) {
    write_file_atomically(folder / "adapter_config.json", text);
    EXPECT_NE(message(folder).find("adapter_config.json"), std::string::npos) << text;
  }
}

// Of routed experts too: four of hidden 64 and intermediate 128.
TEST(PeftAdapter, WrongExpertsAreNamed) {
  const Target target("hf-tiny/mixtral");
  const std::string at = "model.layers.0.block_sparse_moe.experts.";
  const auto with = [&](const std::string& module, const AdapterFiles::Size& size) {
    AdapterFiles files;
    files.add(at + module, size);
    return files;
  };
  const LoraModule module = target.read(with("3.w2", {128, 64})).modules.at(0);
  EXPECT_EQ(module.name, at + "3.w2");
  EXPECT_EQ(module.site->parts.size(), 1u);
  const auto expect = [&](const AdapterFiles& files, const std::vector<std::string>& parts) {
    const auto [code, text] = refusal_of(target, files);
    EXPECT_EQ(code, ErrorCode::kInvalidFile) << text;
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  };
  expect(with("4.w1", {64, 128}), {at + "4.w1", "has no module", "it has", ".w1"});
  expect(with("-1.w1", {64, 128}), {at + "-1.w1", "has no module"});
  expect(with("00.w1", {64, 128}), {at + "00.w1", "has no module"});
  expect(with("1", {64, 128}), {"has no module"});
  expect(with("1.w1", {128, 128}), {at + "1.w1.lora_A", "[4, 128]", "[4, 64]"});
  expect(with("1.w1", {64, 64}), {at + "1.w1.lora_B", "[64, 4]", "[128, 4]"});
  expect(with("1.w2", {64, 128}), {at + "1.w2.lora_A", "[4, 64]", "[4, 128]"});
}

// PEFT has no module of one expert where a tensor holds all of a layer.
TEST(PeftAdapter, PartsOfStackedExpertsAreRefused) {
  struct Stacked {
    const char* model;
    const char* module;
    const char* tensor;
  };
  for (const auto& [model, module, tensor] : std::vector<Stacked>{
           {"hf-tiny/gpt-oss", "model.layers.1.mlp.experts.0.gate_proj", "experts.gate_up_proj"},
           {"hf-tiny/gpt-oss", "model.layers.1.mlp.experts.base_layer", "experts.gate_up_proj"},
           {"hf-tiny/gpt-oss", "model.layers.1.mlp.experts", "experts.gate_up_proj"},
           {"hf-tiny/dbrx", "transformer.blocks.0.ffn.experts.mlp.w1", "experts.w1"},
           {"archs-tiny/qwen3-vl-moe", "model.language_model.layers.0.mlp.experts.1.up_proj",
            "experts.gate_up_proj"},
           {"archs-tiny/granite-moe", "model.layers.0.block_sparse_moe.input_linear",
            "input_linear"}}) {
    SCOPED_TRACE(module);
    AdapterFiles files;
    files.add(module, {64, 64});
    const auto [code, text] = refusal_of(Target(model), files);
    EXPECT_EQ(code, ErrorCode::kUnsupported) << text;
    EXPECT_NE(text.find("in one tensor"), std::string::npos) << text;
    EXPECT_NE(text.find(tensor), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

// What PEFT writes and does not change the result.
TEST(PeftAdapter, HarmlessKeysAndTensorsAreTaken) {
  const Target target;
  AdapterFiles files = good();
  files.config["base_model_name_or_path"] = "somebody/else";
  files.config["init_lora_weights"] = "gaussian";
  files.config["layers_to_transform"] = OrderedJson::array({0, 1});
  files.config["fan_in_fan_out"] = true;
  files.config["megatron_config"] = nullptr;
  files.config["lora_dropout"] = 0.1;
  files.config["peft_version"] = "0.99";
  files.config["eva_config"] = nullptr;
  files.config["target_modules"] = R"((?!.*vision).*\.(q_proj|down_proj))";
  files.tensors["base_model.model.model.embed_tokens.base_layer.weight"] = {
      {256, 64}, std::vector<float>(256 * 64)};
  rename(kA, std::string(kQ) + ".lora_A.default.weight")(files);
  EXPECT_EQ(target.read(files).modules.size(), 2u);
}

double scale_of(const OrderedJson& changes, const char* module) {
  OrderedJson config = AdapterFiles().config;
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return PeftConfig(config, "adapter_config.json").scale_of(module);
}

TEST(PeftConfigTest, ScalesFollowAlphaRankAndPatterns) {
  EXPECT_EQ(scale_of({}, kQ), 2.0);
  EXPECT_EQ(scale_of({{"use_rslora", true}}, kQ), 4.0);
  EXPECT_EQ(scale_of({{"alpha_pattern", {{"q_proj", 3}}}}, kQ), 0.75);
  EXPECT_EQ(scale_of({{"rank_pattern", {{"q_proj", 16}}}}, kQ), 0.5);
  EXPECT_EQ(scale_of({{"rank_pattern", {{"k_proj", 16}, {"proj", 16}}}}, kQ), 2.0);
  EXPECT_EQ(scale_of({{"rank_pattern", {{"layers.0.self_attn.q_proj", 16}}}}, kQ), 0.5);
  EXPECT_EQ(scale_of({{"rank_pattern", {{"layers.1.self_attn.q_proj", 16}}}}, kQ), 2.0);
  EXPECT_EQ(scale_of({{"rank_pattern", {{R"(layers\.[0-3]\..*)", 16}, {"q_proj", 8}}}}, kQ), 0.5);
  EXPECT_EQ(scale_of({{"rank_pattern", {{"q_proj", 8}, {R"(layers\.[0-3]\..*)", 16}}}}, kQ), 1.0);
  EXPECT_EQ(scale_of({{"alpha_pattern", {{"^model.layers.0.*q_proj$", 6.5}}}}, kQ), 1.625);
}

TEST(ModulePatternTest, MeansWhatPythonMeans) {
  const auto matches = [](const char* pattern, const char* name) {
    return ModulePattern(pattern, "test").matches(name);
  };
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("a|b|", ""));
  EXPECT_TRUE(matches(".*", "model.layers.0"));
  EXPECT_TRUE(matches("(a*)*b", "aaab"));
  EXPECT_FALSE(matches("(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac"));
  EXPECT_TRUE(matches("(a|aa)+", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
  EXPECT_TRUE(matches(R"(layers\.(1[0-5]|[2-9])\.q)", "layers.13.q"));
  EXPECT_FALSE(matches(R"(layers\.(1[0-5]|[2-9])\.q)", "layers.16.q"));
  EXPECT_TRUE(matches("[^.]+", "q_proj"));
  EXPECT_FALSE(matches("[^.]+", "a.b"));
  EXPECT_TRUE(matches(R"(\d{2,3})", "123"));
  EXPECT_FALSE(matches(R"(\d{2,3})", "1234"));
  EXPECT_TRUE(matches(R"(\w{3}x?)", "abc"));
  EXPECT_TRUE(matches("(?:ab){2}", "abab"));
  EXPECT_TRUE(matches("[]a-]+", "a-]"));
  EXPECT_FALSE(matches("a^b", "ab"));
  EXPECT_TRUE(matches("^ab$", "ab"));
  for (const char* wrong : {"(", ")", "[", "[a", "*a", "a**", "\\", "[b-a]", "a{3,2}", "a|*"}) {
    EXPECT_THROW(ModulePattern(wrong, "test"), Error) << wrong;
  }
  for (const char* unknown : {"(?=a)", "(?P<n>a)", "(?i)a", R"(\1)", "a*?", "a++", R"(\bq)"}) {
    EXPECT_THROW(ModulePattern(unknown, "test"), Error) << unknown;
  }
  EXPECT_THROW(ModulePattern(std::string(500, '(') + std::string(500, ')'), "test"), Error);
  EXPECT_THROW(ModulePattern("((((a{100}){100}){100}){100}){100}", "test"), Error);
  EXPECT_THROW(ModulePattern("a{4000000000}", "test"), Error);
}

}  // namespace
}  // namespace bl::test
