#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/vocabulary.h"

namespace bl {
namespace {

constexpr std::uint64_t kMaxConfigFile = 64u << 20;

constexpr std::string_view kSuffix = "_token";

// This does not use simdjson, because such files hold whole numbers beyond 64 bits
// ("model_max_length").
Json parse_object(std::string_view text, const std::string& name) {
  Json json = parse_json(text, name);
  if (!json.is_object()) fail(ErrorCode::kInvalidFile, "{}: expected an object", name);
  return json;
}

// Reads a token, which is written as its text or as an object with the text as "content".
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return std::nullopt;
  const auto content = value.find("content");
  if (content == value.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

bool flag(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_boolean() && value->get<bool>();
}

void read_special(TokenizerConfig& config, const std::string& key, const Json& value) {
  if (key == "additional_special_tokens") {
    if (!value.is_array()) return;
    for (const Json& item : value) {
      if (auto text = token_text(item)) config.extra_special_tokens.push_back(*std::move(text));
    }
  } else if (key.size() > kSuffix.size() &&
             key.compare(key.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0) {
    if (auto text = token_text(value)) config.special_tokens[key] = *std::move(text);
  }
}

int checked_id(std::uint64_t id, std::string_view token, const std::string& name) {
  if (id > static_cast<std::uint64_t>(Vocabulary::kMaxId)) {
    fail(ErrorCode::kInvalidFile, "{}: added token '{}' has id {}; the largest possible is {}",
         name, token.substr(0, 100), id, Vocabulary::kMaxId);
  }
  return static_cast<int>(id);
}

void read_added_tokens_decoder(TokenizerConfig& config, const Json& tokens,
                               const std::string& name) {
  if (!tokens.is_object()) return;
  for (const auto& [key, value] : tokens.items()) {
    std::uint64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const auto text = token_text(value);
    if (error != std::errc() || end != key.data() + key.size() || !text || !value.is_object()) {
      fail(ErrorCode::kInvalidFile,
           "{}: added_tokens_decoder: expected ID: {{\"content\": …}}, found '{}'", name,
           key.substr(0, 100));
    }
    AddedToken token;
    token.content = *text;
    token.id = checked_id(id, *text, name);
    token.single_word = flag(value, "single_word");
    token.lstrip = flag(value, "lstrip");
    token.rstrip = flag(value, "rstrip");
    token.normalized = flag(value, "normalized");
    token.special = flag(value, "special");
    config.added_tokens.push_back(std::move(token));
  }
}

void read_chat_template(TokenizerConfig& config, const Json& value) {
  if (value.is_string()) config.set_chat_template("default", value.get<std::string>());
  if (!value.is_array()) return;
  for (const Json& item : value) {
    if (!item.is_object()) continue;
    const auto title = item.find("name");
    const auto text = item.find("template");
    if (title == item.end() || text == item.end()) continue;
    if (!title->is_string() || !text->is_string()) continue;
    config.set_chat_template(title->get<std::string>(), text->get<std::string>());
  }
}

}  // namespace

void TokenizerConfig::set_chat_template(const std::string& name, std::string text) {
  const auto known = std::find_if(chat_templates.begin(), chat_templates.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (known == chat_templates.end()) {
    chat_templates.emplace_back(name, std::move(text));
  } else {
    known->second = std::move(text);
  }
}

void TokenizerConfig::read_tokenizer_config(std::string_view json, const std::string& name) {
  const Json config = parse_object(json, name);
  for (const auto& [key, value] : config.items()) {
    if (key == "add_bos_token" || key == "add_eos_token") {
      if (value.is_boolean()) (key == "add_bos_token" ? add_bos : add_eos) = value.get<bool>();
    } else if (key == "legacy") {
      if (value.is_boolean()) legacy = value.get<bool>();
    } else if (key == "chat_template") {
      read_chat_template(*this, value);
    } else if (key == "added_tokens_decoder") {
      read_added_tokens_decoder(*this, value, name);
    } else {
      read_special(*this, key, value);
    }
  }
}

void TokenizerConfig::read_special_tokens_map(std::string_view json, const std::string& name) {
  const Json map = parse_object(json, name);
  for (const auto& [key, value] : map.items()) read_special(*this, key, value);
}

void TokenizerConfig::read_added_tokens(std::string_view json, const std::string& name) {
  const Json tokens = parse_object(json, name);
  for (const auto& [key, value] : tokens.items()) {
    if (!value.is_number_unsigned()) {
      fail(ErrorCode::kInvalidFile, "{}: expected an id for every token, but '{}' has none", name,
           key.substr(0, 100));
    }
    AddedToken token;
    token.content = key;
    token.id = checked_id(value.get<std::uint64_t>(), key, name);
    added_tokens.push_back(std::move(token));
  }
}

void TokenizerConfig::read_chat_template_json(std::string_view json, const std::string& name) {
  const Json document = parse_object(json, name);
  const auto value = document.find("chat_template");
  if (value != document.end()) read_chat_template(*this, *value);
}

TokenizerConfig TokenizerConfig::from_folder(const std::filesystem::path& folder) {
  TokenizerConfig config;
  const auto read = [&](const char* file, auto take) {
    const std::filesystem::path path = folder / file;
    if (std::filesystem::is_regular_file(path))
      take(read_file(path, kMaxConfigFile), path.string());
  };
  read("special_tokens_map.json", [&](const std::string& text, const std::string& name) {
    config.read_special_tokens_map(text, name);
  });
  read("added_tokens.json", [&](const std::string& text, const std::string& name) {
    config.read_added_tokens(text, name);
  });
  read("tokenizer_config.json", [&](const std::string& text, const std::string& name) {
    config.read_tokenizer_config(text, name);
  });
  read("chat_template.json", [&](const std::string& text, const std::string& name) {
    config.read_chat_template_json(text, name);
  });
  read("chat_template.jinja", [&](std::string text, const std::string&) {
    config.set_chat_template("default", std::move(text));
  });
  const std::filesystem::path more = folder / "additional_chat_templates";
  if (std::filesystem::is_directory(more)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(more)) {
      if (entry.is_regular_file() && entry.path().extension() == ".jinja")
        files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      config.set_chat_template(file.stem().string(), read_file(file, kMaxConfigFile));
    }
  }
  return config;
}

}  // namespace bl
