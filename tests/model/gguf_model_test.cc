// What metadata and tensors of a file may say, right and wrong, seen through the whole description.

#include "model/gguf_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "format/gguf_bytes.h"
#include "text/tokenizer.h"

namespace bl::test {
namespace {

// Metadata of a small model; `skip` leaves one key out so that a case can put its own there.
GgufBytes metadata(const std::string& architecture, const std::string& skip = "") {
  GgufBytes file;
  const auto add = [&](const std::string& key, auto value) {
    if (key != skip) file.add(architecture + "." + key, value);
  };
  file.add("general.architecture", architecture.c_str());
  add("block_count", 1u);
  add("context_length", 64u);
  add("embedding_length", 8u);
  add("feed_forward_length", 8u);
  add("attention.head_count", 2u);
  add("attention.head_count_kv", 1u);
  add("attention.layer_norm_rms_epsilon", 1e-5f);
  return file;
}

GgufModel describe(const std::string& bytes) {
  return describe_gguf(GgufFile::parse(as_span(bytes), "test.gguf"), ArchLibrary());
}

std::string error_of(const std::string& bytes) {
  try {
    describe(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_error(const GgufBytes& file, const std::string& part) {
  const std::string message = error_of(file.bytes());
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::vector<float> values_of(const GgufModel& model, const std::string& name) {
  const HostArray array = model.tensors->read(name);
  std::vector<float> values;
  for (std::int64_t i = 0; i < array.view.shape.elements(); ++i) {
    values.push_back(static_cast<float>(array.view.as<Half>()[i]));
  }
  return values;
}

TEST(GgufModel, SaysWhatIsMissingOrWrong) {
  expect_error(GgufBytes().ramp("t", {4}, 1), "general.architecture is missing");
  expect_error(metadata("llama"), "holds no tensors");
  expect_error(metadata("lama").ramp("t", {4}, 1),
               "test.gguf: GGUF architecture \"lama\" is unknown; known of its family is llama");
  expect_error(GgufBytes().add("general.architecture", 3u).ramp("t", {4}, 1),
               "a string is expected");
  for (const char* key : {"block_count", "context_length", "embedding_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    expect_error(metadata("llama", key).ramp("token_embd.weight", {8, 6}, 1),
                 std::string("llama.") + key);
  }
  expect_error(metadata("llama", "attention.head_count")
                   .add("llama.attention.head_count", 0u)
                   .ramp("token_embd.weight", {8, 6}, 1),
               "a positive number is expected");
  expect_error(metadata("llama", "block_count")
                   .add("llama.block_count", "many")
                   .ramp("token_embd.weight", {8, 6}, 1),
               "llama.block_count");
  expect_error(metadata("llama", "block_count")
                   .add("llama.block_count", 4000000000u)
                   .ramp("token_embd.weight", {8, 6}, 1),
               "llama.block_count");
  expect_error(metadata("llama").add("split.count", 3u).ramp("t", {4}, 1), "a model in 3 files");
}

TEST(GgufModel, SaysWhichTensorIsWrong) {
  expect_error(metadata("llama").ramp("blk.0.surprise.weight", {8}, 1), "has no place");
  expect_error(metadata("llama").ramp("blk.7.attn_norm.weight", {8}, 1), "says 1 blocks");
  expect_error(metadata("llama").ramp("blk.00.attn_norm.weight", {8}, 1), "has no place");
  expect_error(metadata("llama").ramp("blk.0.attn_q.weight", {8, 6}, 1), "2 heads of even size");
  expect_error(metadata("llama").ramp("blk.0.attn_qkv.weight", {8, 5}, 1),
               "queries, keys and values");
  expect_error(metadata("llama").tensor("output_norm.weight", {256}, 16, std::string(66, '\0')),
               "stored as IQ2_XXS; types that can be read are F32");
  expect_error(metadata("qwen3moe")
                   .add("qwen3moe.expert_count", 4u)
                   .add("qwen3moe.expert_used_count", 2u)
                   .add("qwen3moe.expert_feed_forward_length", 8u)
                   .ramp("blk.0.ffn_up_exps.weight", {8, 8, 3}, 1),
               "4 experts");
  expect_error(metadata("llama").ramp("rope_freqs.weight", {3}, 1), "rope_freqs.weight");
}

TEST(GgufModel, RefusesValuesThatFp16CannotHold) {
  const std::string bytes = metadata("llama")
                                .ramp("token_embd.weight", {8, 6}, 1)
                                .ramp("output_norm.weight", {8}, 1e5f)
                                .bytes();
  const GgufModel model = describe(bytes);
  EXPECT_EQ(values_of(model, "model.embed_tokens.weight")[9], 9);
  EXPECT_THROW(model.tensors->read("model.norm.weight"), Error);
}

// Rows of a head: the file has (0, 0'), (1, 1'), the model 0, 1, 0', 1'.
TEST(GgufModel, PutsRotaryRowsInOrderAlsoWhenFused) {
  const std::vector<float> expected = {0, 2, 1, 3, 4, 6, 5, 7};
  GgufBytes split = metadata("llama");
  split.ramp("blk.0.attn_q.bias", {8}, 1).ramp("blk.0.attn_k.bias", {4}, 1);
  const std::string split_bytes = split.bytes();
  const GgufModel a = describe(split_bytes);
  EXPECT_EQ(values_of(a, "model.layers.0.self_attn.q_proj.bias"), expected);
  EXPECT_EQ(values_of(a, "model.layers.0.self_attn.k_proj.bias"), (std::vector<float>{0, 2, 1, 3}));
  const std::string fused_bytes = metadata("llama").ramp("blk.0.attn_qkv.bias", {16}, 1).bytes();
  const GgufModel b = describe(fused_bytes);
  EXPECT_EQ(values_of(b, "model.layers.0.self_attn.q_proj.bias"), expected);
  EXPECT_EQ(values_of(b, "model.layers.0.self_attn.k_proj.bias"),
            (std::vector<float>{8, 10, 9, 11}));
  EXPECT_EQ(values_of(b, "model.layers.0.self_attn.v_proj.bias"),
            (std::vector<float>{12, 13, 14, 15}));
}

TEST(GgufModel, TakesFusedExpertsApart) {
  GgufBytes file = metadata("qwen3moe");
  file.add("qwen3moe.expert_count", 2u).add("qwen3moe.expert_used_count", 1u);
  file.add("qwen3moe.expert_feed_forward_length", 1u);
  file.ramp("blk.0.ffn_gate_up_exps.weight", {2, 2, 2}, 1);
  const std::string bytes = file.bytes();
  const GgufModel model = describe(bytes);
  const std::string experts = "model.layers.0.mlp.experts.";
  EXPECT_EQ(values_of(model, experts + "0.gate_proj.weight"), (std::vector<float>{0, 1}));
  EXPECT_EQ(values_of(model, experts + "0.up_proj.weight"), (std::vector<float>{2, 3}));
  EXPECT_EQ(values_of(model, experts + "1.gate_proj.weight"), (std::vector<float>{4, 5}));
  EXPECT_EQ(values_of(model, experts + "1.up_proj.weight"), (std::vector<float>{6, 7}));
}

GgufBytes with_vocabulary(const std::string& model, const std::string& skip) {
  GgufBytes file = metadata("llama");
  file.ramp("token_embd.weight", {8, 4}, 1);
  file.add("tokenizer.ggml.model", model.c_str());
  if (skip != "tokens") file.add_texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>"});
  if (skip != "token_type") {
    file.add_list<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3});
  }
  if (skip != "scores") file.add_list<float>("tokenizer.ggml.scores", 6, {-1, -2, -3, 0});
  if (skip != "merges") file.add_texts("tokenizer.ggml.merges", {"a b"});
  if (skip != "pre") file.add("tokenizer.ggml.pre", "gpt-2");
  return file;
}

TEST(GgufVocabulary, IsCheckedBeforeItIsUsed) {
  expect_error(with_vocabulary("wordpiece", ""), "tokenizer.ggml.model is \"wordpiece\"");
  expect_error(with_vocabulary("gpt2", "tokens"), "tokenizer.ggml.tokens has 0 entries");
  expect_error(with_vocabulary("llama", "scores"), "tokenizer.ggml.scores has 0 entries");
  expect_error(with_vocabulary("gpt2", "pre").add("tokenizer.ggml.pre", "nobody"),
               "pre-tokenizer \"nobody\"");
  expect_error(with_vocabulary("gpt2", "token_type")
                   .add_list<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1}),
               "2 entries for 4 tokens");
  // Lists of the wrong element type were read out of bounds elsewhere.
  expect_error(with_vocabulary("llama", "scores")
                   .add_list<std::uint8_t>("tokenizer.ggml.scores", 0, {1, 2, 3, 4}),
               "an array of floats is expected");
  expect_error(with_vocabulary("gpt2", "token_type")
                   .add_list<float>("tokenizer.ggml.token_type", 6, {1, 1, 1, 3}),
               "an array of integers is expected");
  expect_error(with_vocabulary("gpt2", "tokens")
                   .add_list<std::uint32_t>("tokenizer.ggml.tokens", 4, {1, 2, 3, 4}),
               "an array of strings is expected");
  expect_error(with_vocabulary("gpt2", "tokens")
                   .add_texts("tokenizer.ggml.tokens", {"a", "\xc0\x80", "ab", "d"}),
               "token 1 is not UTF-8");
  expect_error(with_vocabulary("gpt2", "merges").add_texts("tokenizer.ggml.merges", {"ab"}),
               "entry 0 is not two tokens");
  expect_error(with_vocabulary("gpt2", "").add("tokenizer.chat_template", "\xff\xfe"), "not UTF-8");
}

TEST(GgufVocabulary, KeepsSpecialsAndTemplates) {
  GgufBytes file = with_vocabulary("gpt2", "");
  file.add("tokenizer.ggml.bos_token_id", 3u).add("tokenizer.ggml.eos_token_id", 4000000000u);
  file.add("tokenizer.ggml.add_bos_token", true).add("tokenizer.chat_template", "plain");
  file.add_texts("tokenizer.chat_templates", {"tools"});
  file.add("tokenizer.chat_template.tools", "with tools");
  const std::string bytes = file.bytes();
  const GgufModel model = describe(bytes);
  EXPECT_EQ(model.config["bos_token_id"], 3);
  EXPECT_TRUE(model.config["eos_token_id"].is_null());    // no such token
  EXPECT_EQ(model.generation_config["eos_token_id"], 3);  // "<|end|>" is known to end answers
  EXPECT_EQ(model.tokenizer_config["chat_template"][1]["name"], "tools");
  const auto tokenizer =
      Tokenizer::from_json(model.tokenizer_json, model.tokenizer_config.dump(), "test");
  EXPECT_EQ(tokenizer->encode("ab<|end|>b"), (std::vector<std::int32_t>{3, 2, 3, 1}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{3, 2, 1}, true), "abb");
  EXPECT_EQ(tokenizer->chat_template(), "plain");
}

TEST(GgufModel, FindsTheRuleOfRopeDivisors) {
  GgufBytes file = metadata("llama", "attention.head_count");
  file.add("llama.attention.head_count", 1u).ramp("token_embd.weight", {8, 4}, 1);
  const auto scaling = [&](const std::vector<float>& divisors) {
    GgufBytes copy = file;
    std::string data;
    for (const float divisor : divisors) data += GgufBytes::raw(divisor);
    const std::string bytes = copy.tensor("rope_freqs.weight", {4}, 0, data).bytes();
    return describe(bytes).config["rope_scaling"];
  };
  // Wavelengths 6.28, 62.8, 628 and 6283: factor 8, context 32 (bounds 8 and 32).
  const Json known = scaling({1, 8, 8, 8});
  EXPECT_EQ(known["rope_type"], "longrope");  // nothing lies between: 8192 would not fit
  EXPECT_EQ(known["attention_factor"], 1.0);
  EXPECT_EQ(known["long_factor"], Json({1.0, 8.0, 8.0, 8.0}));
  EXPECT_TRUE(scaling({1, 1, 1, 1}).is_object());
  EXPECT_NE(error_of(GgufBytes(file).ramp("rope_freqs.weight", {4}, -1).bytes()), "");
}

TEST(GgufModel, LayersWithAWindowHaveTheRopeBaseOfTheFile) {
  GgufBytes file = metadata("olmo2");
  file.add("olmo2.attention.sliding_window", 8u).add("olmo2.rope.freq_base", 1234.0f);
  const std::string bytes = file.ramp("token_embd.weight", {8, 4}, 1).bytes();
  const Json rope = describe(bytes).config["rope_parameters"];
  EXPECT_EQ(rope["sliding_attention"], Json({{"rope_type", "default"}, {"rope_theta", 1234.0}}));
  EXPECT_EQ(rope["full_attention"], Json({{"rope_theta", 1234.0}}));
}

}  // namespace
}  // namespace bl::test
