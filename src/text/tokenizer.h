#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bl {

struct EncodeOptions {
  bool add_special = true;  // what the post-processor puts around a text (BOS, EOS)
  // Special tokens that the text spells are such tokens; false: text like any other, as it should
  // be where strangers write it.
  bool parse_special = true;
};

struct TokenizerParts;
struct TokenizerConfig;
class DecodeStage;

// Text to token ids and back, as tokenizer.json or a sentencepiece model says.
//
// Goals: the ids of the Rust package `tokenizers` and of sentencepiece, token for token; time
// linear in the text; safe on hostile files and texts. Non-goals: offsets, pairs of sequences,
// truncation, padding, training, dropout.
//
// Immutable after loading and thread-safe.
class Tokenizer {
 public:
  // From a model folder: tokenizer.json, else a sentencepiece model (tokenizer.model, …), with
  // tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat templates beside it.
  // Throws kNotFound, kInvalidFile, kUnsupported.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& folder);
  // From texts in memory; the config may be empty. `name` stands for the file in errors.
  static std::unique_ptr<Tokenizer> from_json(std::string_view tokenizer_json,
                                              std::string_view tokenizer_config_json,
                                              std::string_view name);
  // From the bytes of a sentencepiece model.
  static std::unique_ptr<Tokenizer> from_sentencepiece(std::string_view model,
                                                       std::string_view tokenizer_config_json,
                                                       std::string_view name);
  ~Tokenizer();

  // Text of added tokens is recognised, special or not. What is not UTF-8 in `text` counts as
  // U+FFFD. Throws kInvalidArgument for text that the vocabulary cannot express and kLimit where a
  // pattern of the tokenizer does not come to an end.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Ids that do not exist are left out, special ones if `skip_special`.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // One more than the highest id.
  int vocab_size() const;
  std::optional<int> token_to_id(std::string_view token) const;
  // The token as the vocabulary has it ("Ġthe", "▁the"); empty for ids that do not exist.
  std::string_view id_to_token(int id) const;
  bool is_special(int id) const;

  // Special tokens by their name in the configuration: "bos_token", "eos_token", "pad_token", …;
  // nothing where the configuration names none (or one that is not in the vocabulary).
  std::optional<int> special_id(const std::string& name) const;
  std::string special_token(const std::string& name) const;
  std::optional<int> bos_id() const { return special_id("bos_token"); }
  std::optional<int> eos_id() const { return special_id("eos_token"); }
  std::string bos_token() const { return special_token("bos_token"); }
  std::string eos_token() const { return special_token("eos_token"); }
  // (name, text) of all special tokens that the configuration names, for chat templates.
  std::vector<std::pair<std::string, std::string>> special_tokens() const;

  // The chat template for general use, if the model has one; all of them as (name, text).
  std::optional<std::string> chat_template() const;
  const std::vector<std::pair<std::string, std::string>>& chat_templates() const;

 private:
  friend class TextStream;
  explicit Tokenizer(TokenizerParts parts);

  struct TextRun {
    std::string_view text;
    bool at_origin = false;  // of what was given
    bool parse_special = true;
  };
  void encode_text(const TextRun& run, void* session, std::vector<std::int32_t>& out) const;
  void decode_one(std::int32_t id, bool skip_special, DecodeStage& stage) const;
  void surround_by_config();

  std::unique_ptr<TokenizerParts> parts_;
};

}  // namespace bl
