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

// The contents of the files around a vocabulary: names of special tokens, chat templates, added
// tokens.
struct TokenizerConfig {
  // Maps "bos_token", "eos_token", "unk_token", "pad_token", … to the token's text.
  std::map<std::string, std::string> special_tokens;
  std::vector<std::string> extra_special_tokens;  // "additional_special_tokens"
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> legacy;  // every stretch of text gets a dummy prefix, not only the first one
  std::vector<AddedToken> added_tokens;
  // The (name, template) of all chat templates; the one for general use is named "default".
  std::vector<std::pair<std::string, std::string>> chat_templates;

  // Each of these adds the contents of one document. `name` is the file, for errors. They throw
  // kInvalidFile.
  void read_tokenizer_config(std::string_view json, const std::string& name);
  void read_special_tokens_map(std::string_view json, const std::string& name);
  void read_added_tokens(std::string_view json, const std::string& name);
  void read_chat_template_json(std::string_view json, const std::string& name);
  void set_chat_template(const std::string& name, std::string text);

  // Reads all of them from a model folder. Each file may be missing.
  static TokenizerConfig from_folder(const std::filesystem::path& folder);
};

}  // namespace bl
