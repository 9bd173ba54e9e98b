#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/added_tokens.h"

namespace bl {

// What the files around a vocabulary say: names of special tokens, chat templates, added tokens.
struct TokenizerConfig {
  // "bos_token", "eos_token", "unk_token", "pad_token", … → the token's text.
  std::map<std::string, std::string> special_tokens;
  std::vector<std::string> extra_special_tokens;  // "additional_special_tokens"
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> legacy;  // every stretch of text gets a dummy prefix, not only the first
  std::vector<AddedToken> added_tokens;
  // (name, template); the one for general use is named "default".
  std::vector<std::pair<std::string, std::string>> chat_templates;

  // Adds what the document says to what is known. `name` is the file, for errors.
  void read_tokenizer_config(std::string_view json, const std::string& name);
  void read_special_tokens_map(std::string_view json, const std::string& name);
  void read_added_tokens(std::string_view json, const std::string& name);
  void read_chat_template_json(std::string_view json, const std::string& name);
  void set_chat_template(const std::string& name, std::string text);

  // All of them from a model folder; each file may be missing.
  static TokenizerConfig from_folder(const std::filesystem::path& folder);
};

}  // namespace bl
