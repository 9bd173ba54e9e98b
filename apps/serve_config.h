#pragma once
// The options of `bitloom serve` from a file and from the environment.
//
// One precedence: what the command line gives, else the environment (BITLOOM_PORT), else the file
// (port), else the default. An option that may be given several times is taken from one of them as
// a whole. Keys are the long names of the flags; '-' and '_' are alike.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "option_parser.h"

namespace bl {

class ServeConfig {
 public:
  // Reads the environment and the file, which may be empty. `keys`: the options there are. Throws
  // UsageError for a key that is none of them, with the nearest one, and kInvalidFile for text that
  // is no TOML.
  ServeConfig(const std::filesystem::path& file, const std::vector<std::string>& keys);

  // The values of an option; nothing where neither has it.
  std::optional<OptionTexts> find(const std::string& key) const;

 private:
  void read_environment(const std::vector<std::string>& keys);
  void read_file(const std::filesystem::path& file, const std::vector<std::string>& keys);

  std::map<std::string, OptionTexts> values_;  // the environment's replace the file's
};

// Writes options as such a file. Options that are not set, and those that cannot stand in a file,
// are comments; keys are not shown.
class ConfigWriter {
 public:
  void group(const char* name) { text_ += std::string("\n# ") + name + "\n"; }
  void operator()(bool value, const OptionField& about) { line(about, value ? "true" : "false"); }
  void operator()(std::int64_t value, const OptionField& about) {
    line(about, std::to_string(value));
  }
  void operator()(std::uint64_t value, const OptionField& about) {
    line(about, std::to_string(value));
  }
  void operator()(double value, const OptionField& about) { line(about, show_value(value)); }
  void operator()(const ByteSize& value, const OptionField& about) {
    if (value.bytes == 0) return unset(about);
    line(about, quoted(show_value(value)));
  }
  void operator()(const std::string& value, const OptionField& about) {
    if (value.empty()) return unset(about);
    line(about, quoted(value));
  }
  void operator()(const std::vector<std::string>& values, const OptionField& about);
  template <class T>
  void operator()(const std::optional<T>& value, const OptionField& about) {
    if (!value) return unset(about);
    (*this)(*value, about);
  }
  const std::string& text() const { return text_; }

 private:
  static std::string quoted(const std::string& text);
  void line(const OptionField& about, const std::string& value);
  void unset(const OptionField& about);

  std::string text_ = "# The options of `bitloom serve`; --config reads them.\n";
};

}  // namespace bl
