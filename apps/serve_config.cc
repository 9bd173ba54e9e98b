#include "serve_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "comma_list.h"
#include "usage_error.h"

extern char** environ;  // NOLINT: POSIX declares it so

namespace bl {
namespace {

constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr std::string_view kPrefix = "BITLOOM_";
// Variables with that prefix that mean something else.
constexpr std::string_view kOthers[] = {"data", "models", "test_rounds"};

std::string normal(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  std::transform(key.begin(), key.end(), key.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return key;
}

bool is_among(std::string_view key, const std::vector<std::string>& keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::string text_of(const toml::node& value, const std::string& where, const std::string& key) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* number = value.as_integer()) return std::to_string(number->get());
  if (const auto* number = value.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = value.as_boolean()) return flag->get() ? "true" : "false";
  fail_usage("{}:{}: {} should be a text, a number, true, false or a list of these", where,
             value.source().begin.line, key);
}

}  // namespace

ServeConfig::ServeConfig(const std::filesystem::path& file, const std::vector<std::string>& keys) {
  if (!file.empty()) read_file(file, keys);
  read_environment(keys);
}

std::optional<OptionTexts> ServeConfig::find(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

// A misspelled variable is an error, since without its key the server would be open; a variable
// that is like no option belongs to somebody else.
void ServeConfig::read_environment(const std::vector<std::string>& keys) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kPrefix)) continue;
    const std::size_t equals = text.find('=');
    if (equals == text.npos) continue;
    const std::string name(text.substr(0, equals));
    const std::string key = normal(name.substr(kPrefix.size()));
    if (std::find(std::begin(kOthers), std::end(kOthers), key) != std::end(kOthers)) continue;
    if (is_among(key, keys)) {
      values_[key] = {name, split_at_commas(text.substr(equals + 1)),
                      std::string(text.substr(equals + 1))};
      continue;
    }
    std::string near = nearest_name(key, keys);
    if (near.empty()) continue;
    std::transform(near.begin(), near.end(), near.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    fail_usage("unknown variable {}; did you mean {}{}?", name, kPrefix, near);
  }
}

void ServeConfig::read_file(const std::filesystem::path& file,
                            const std::vector<std::string>& keys) {
  const std::string where = file.string();
  const std::string text = bl::read_file(file, kMostBytes);
  toml::table table;
  try {
    table = toml::parse(std::string_view(text), std::string_view(where));
  } catch (const toml::parse_error& error) {
    fail(ErrorCode::kInvalidFile, "{}:{}: {}", where, error.source().begin.line,
         error.description());
  }
  for (const auto& [name, value] : table) {
    const std::string key = normal(std::string(name.str()));
    if (!is_among(key, keys)) {
      fail_usage("{}:{}: unknown option {}{} (bitloom serve --help)", where,
                 name.source().begin.line, std::string_view(name.str()).substr(0, 100),
                 did_you_mean(key, keys));
    }
    OptionTexts texts{fmt::format("{}:{}: {}", where, name.source().begin.line, key), {}, {}};
    if (const auto* list = value.as_array()) {
      for (const toml::node& each : *list) texts.texts.push_back(text_of(each, where, key));
      texts.is_list = true;
    } else {
      texts.texts.push_back(text_of(value, where, key));
      texts.whole = texts.texts.front();
    }
    values_[key] = std::move(texts);
  }
}

void ConfigWriter::operator()(const std::vector<std::string>& values, const OptionField& about) {
  if (values.empty()) return unset(about);
  const std::string key = option_key(about);
  const bool is_secret = key == "api_key" || key == "admin_key";
  std::string list;
  for (const std::string& value : values) {
    list += (list.empty() ? "" : ", ") + quoted(is_secret ? "***" : value);
  }
  line(about, "[" + list + "]");
}

std::string ConfigWriter::quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\u{:04x}", byte);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

void ConfigWriter::line(const OptionField& about, const std::string& value) {
  const std::string key = option_key(about);
  const bool is_own = key == "config" || key == "print_config";
  text_ += fmt::format("{}{} = {}\n", is_own ? "# " : "", key, value);
}

void ConfigWriter::unset(const OptionField& about) {
  text_ += fmt::format("# {} =   # {}\n", option_key(about), about.help);
}

}  // namespace bl
