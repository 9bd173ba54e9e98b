#include "tiny_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "format/safetensors_writer.h"
#include "support/data.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

std::string utf8(int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// The printable stand-in of a byte in byte-level vocabularies (public scheme of 2019: printable
// Latin-1 stands for itself, the others follow from U+0100 on).
std::array<std::string, 256> byte_names() {
  std::array<std::string, 256> names;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    names[static_cast<std::size_t>(byte)] = utf8(printable ? byte : next++);
  }
  return names;
}

void write_tokenizer(const fs::path& folder) {
  Json vocab = Json::object();
  const std::array<std::string, 256> names = byte_names();
  for (std::size_t byte = 0; byte < 256; ++byte) vocab[names[byte]] = byte;
  // No text becomes these, but the model says them.
  for (int other = 260; other < 320; ++other) vocab["~" + std::to_string(other)] = other;
  Json added = Json::array();
  int id = 256;
  for (const char* token : {"<s>", "</s>", "<|user|>", "<|bot|>"}) {
    vocab[token] = id;
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json sequence = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
      {"pair", Json::array()},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}}}}};
  const Json document = {{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", added},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", byte_level},
                         {"post_processor", sequence},
                         {"decoder", byte_level},
                         {"model",
                          {{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"vocab", vocab},
                           {"merges", Json::array()}}}};
  write_file_atomically(folder / "tokenizer.json", document.dump());
  const Json config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"bos_token", "<s>"},
      {"eos_token", "</s>"},
      {"chat_template",
       "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
       "{% elif m.role == 'user' %}<|user|>{{ m.content }}{% else %}<|bot|>{{ m.content }}</s>"
       "{% endif %}{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}"}};
  write_file_atomically(folder / "tokenizer_config.json", config.dump());
}

constexpr std::int64_t kHidden = 32, kWide = 64, kVocab = 320, kKv = 16, kHead = 8;

// Names and shapes of tensors.
class Tensors {
 public:
  void add(const std::string& name, const Shape& shape) {
    plans_.push_back(plan_tensor(name + ".weight", DType::kF16, shape));
  }
  void add_layer(const std::string& at) {
    add(at + "self_attn.q_proj", {kHidden, kHidden});
    add(at + "self_attn.k_proj", {kKv, kHidden});
    add(at + "self_attn.v_proj", {kKv, kHidden});
    add(at + "self_attn.o_proj", {kHidden, kHidden});
    add(at + "mlp.gate_proj", {kWide, kHidden});
    add(at + "mlp.up_proj", {kWide, kHidden});
    add(at + "mlp.down_proj", {kHidden, kWide});
    add(at + "input_layernorm", {kHidden});
    add(at + "post_attention_layernorm", {kHidden});
  }
  // Biases of the four matrices of attention: all 0, except that the key of each head has this
  // value in the channel that the rotary encoding turns least.
  void add_biases(const std::string& at, float key) {
    for (const auto& [linear, width] : {std::pair("q_proj", kHidden), std::pair("k_proj", kKv),
                                        std::pair("v_proj", kKv), std::pair("o_proj", kHidden)}) {
      const std::string name = at + "self_attn." + linear + ".bias";
      plans_.push_back(plan_tensor(name, DType::kF16, {width}));
      biases_[name].resize(static_cast<std::size_t>(width));
    }
    std::vector<float>& keys = biases_.at(at + "self_attn.k_proj.bias");
    for (std::size_t i = kHead / 2 - 1; i < keys.size(); i += kHead) keys[i] = key;
  }
  // Random weights.
  void write(const fs::path& folder) const {
    SafetensorsWriter writer(folder / "model.safetensors", plans_, {{"format", "pt"}});
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 1);
    for (const TensorPlan& plan : writer.tensors()) {
      std::vector<std::uint16_t> values(plan.bytes() / 2);
      const auto bias = biases_.find(plan.name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (bias != biases_.end()) {
          values[i] = float_to_half(bias->second[i]);
        } else {
          values[i] = float_to_half(plan.shape.size() == 1 ? 1.0f : 0.2f * normal(random));
        }
      }
      writer.write(std::as_bytes(std::span(values)));
    }
    writer.commit();
  }

 private:
  std::vector<TensorPlan> plans_;
  std::map<std::string, std::vector<float>> biases_;
};

void write_weights(const fs::path& folder, std::optional<float> key_bias) {
  Tensors tensors;
  tensors.add("model.embed_tokens", {kVocab, kHidden});
  tensors.add("model.norm", {kHidden});
  tensors.add("lm_head", {kVocab, kHidden});
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    tensors.add_layer(layer);
    if (key_bias) tensors.add_biases(layer, *key_bias);
  }
  tensors.write(folder);
}

fs::path make_model(const char* name, const std::string& config_extra,
                    std::optional<float> key_bias) {
  const fs::path folder = scratch_dir(name);
  write_tokenizer(folder);
  write_weights(folder, key_bias);
  write_file_atomically(
      folder / "config.json",
      "{" + config_extra +
          R"("architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
 "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 1024,
 "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": 256,
 "eos_token_id": 257, "tie_word_embeddings": false})");
  return folder;
}

}  // namespace

SessionOptions textless_session(const std::filesystem::path& model, const std::string& backend,
                                std::int64_t sequences) {
  SessionOptions options;
  options.model = model;
  options.backend = backend;
  options.threads = 2;
  options.with_text = false;
  options.sequences = sequences;
  return options;
}

Request greedy_request(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.ignore_end_tokens = true;
  return request;
}

fs::path make_tiny_model(const char* name, const std::string& config_extra) {
  return make_model(name, config_extra, std::nullopt);
}

fs::path make_biased_model(const char* name, float key_bias) {
  return make_model(name, "\"attention_bias\": true,", key_bias);
}

fs::path make_tiny_draft(const char* name, const std::string& config_extra) {
  const fs::path folder = scratch_dir(name);
  Tensors tensors;
  tensors.add("fc", {kHidden, 2 * kHidden});
  tensors.add("hidden_norm", {kHidden});
  tensors.add("norm", {kHidden});
  tensors.add_layer("layers.0.");
  tensors.add("layers.0.self_attn.q_norm", {kHead});
  tensors.add("layers.0.self_attn.k_norm", {kHead});
  tensors.write(folder);
  write_file_atomically(
      folder / "config.json",
      "{" + config_extra +
          R"("architectures": ["DFlashDraftModel"], "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
 "max_position_embeddings": 1024, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
 "block_size": 5, "dflash_config": {"mask_token_id": 300, "target_layer_ids": [0, 1]}})");
  return folder;
}

std::vector<fs::path> golden_models(const char* set) {
  std::vector<fs::path> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(unpacked(set))) {
    if (fs::exists(entry.path() / "config.json")) models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  return models;
}

}  // namespace bl::test
