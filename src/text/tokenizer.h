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
  bool add_special = true;  // add the tokens that the post-processor puts around a text (BOS, EOS)
  // True: special tokens that the text spells become tokens. False: they are text like any other,
  // as is right for text by strangers.
  bool parse_special = true;
  // Offsets of the text, in rising order, at which no special token begins: what stands there is
  // text by strangers. (A PromptGuard finds them.)
  std::span<const std::size_t> plain = {};
};

struct TokenizerParts;
struct TokenizerConfig;
class DecodeStage;

// Converts text to token ids and back, as tokenizer.json or a sentencepiece model says.
//
// Goals: to give the ids of the Rust package `tokenizers` and of sentencepiece, token for token; in
// time linear in the text; and to be safe with hostile files and texts. Non-goals: offsets, pairs
// of sequences, truncation, padding, training, dropout.
//
// Immutable after loading, and thread-safe.
class Tokenizer {
 public:
  // Loads the tokenizer of a model folder: tokenizer.json, else a sentencepiece model
  // (tokenizer.model, …), with the tokenizer_config.json, special_tokens_map.json,
  // added_tokens.json and chat templates beside it. Throws kNotFound, kInvalidFile, kUnsupported.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& folder);
  // Whether a folder holds one of the files that load() looks for.
  static bool is_in(const std::filesystem::path& folder);
  // Reads texts in memory; the config may be empty. `name` stands for the file in errors.
  static std::unique_ptr<Tokenizer> from_json(std::string_view tokenizer_json,
                                              std::string_view tokenizer_config_json,
                                              std::string_view name);
  // Reads the bytes of a sentencepiece model; otherwise like from_json().
  static std::unique_ptr<Tokenizer> from_sentencepiece(std::string_view model,
                                                       std::string_view tokenizer_config_json,
                                                       std::string_view name);
  ~Tokenizer();

  // Returns the ids of a text. Added tokens are recognised in it, special ones only with
  // `parse_special`. Ill-formed UTF-8 counts as U+FFFD. Throws kInvalidArgument for text that the
  // vocabulary cannot express, and kLimit for more than 1 GiB or where a pattern of the tokenizer
  // does not come to an end.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The offsets in a text at which a special token begins, or may begin if more text follows.
  std::vector<std::size_t> special_begins(std::string_view text) const;

  // Returns the text of ids. Ids that do not exist are left out, and special ones if
  // `skip_special`.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  // One more than the highest id.
  int vocab_size() const;
  std::optional<int> token_to_id(std::string_view token) const;
  // The token as it is in the vocabulary ("Ġthe", "▁the"); empty for ids that do not exist.
  std::string_view id_to_token(int id) const;
  bool is_special(int id) const;

  // Special tokens by their name in the configuration: "bos_token", "eos_token", "pad_token", ….
  // Empty if the configuration does not name one; the id also if it is not in the vocabulary.
  std::optional<int> special_id(const std::string& name) const;
  std::string special_token(const std::string& name) const;
  std::optional<int> bos_id() const { return special_id("bos_token"); }
  std::optional<int> eos_id() const { return special_id("eos_token"); }
  std::string bos_token() const { return special_token("bos_token"); }
  std::string eos_token() const { return special_token("eos_token"); }
  // The (name, text) of all special tokens that the configuration names, for chat templates.
  std::vector<std::pair<std::string, std::string>> special_tokens() const;

  // The chat template for general use, if the model has one, and all of them as (name, text).
  std::optional<std::string> chat_template() const;
  const std::vector<std::pair<std::string, std::string>>& chat_templates() const;

 private:
  friend class TextStream;
  explicit Tokenizer(TokenizerParts parts);

  struct TextRun {
    std::string_view text;
    bool at_origin = false;  // the run begins where the whole text begins
    bool parse_special = true;
  };
  void encode_text(const TextRun& run, void* session, std::vector<std::int32_t>& out) const;
  void decode_one(std::int32_t id, bool skip_special, DecodeStage& stage) const;
  void surround_by_config();

  std::unique_ptr<TokenizerParts> parts_;
};

}  // namespace bl
