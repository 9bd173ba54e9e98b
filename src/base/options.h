#pragma once
// One description of the fields of an options struct, which every reader of the struct visits.
//
// A struct lists its fields once:
//
//   template <class V> void visit(V&& v) {
//     v.group("Sampling");
//     v(temperature, {.flag = "--temperature", .value = "X", .help = "0 is greedy"});
//   }
//
// The command line's parser, --help, JSON and the settings of `chat` all come from that list, so
// that no second list can drift from it. Field types are those that parse_value() knows.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest_name.h"

namespace bl {

struct OptionField {
  const char* flag = "";           // "-n,--tokens"; a name without dashes is a positional argument
  const char* value = "";          // placeholder in --help: "N"
  const char* help = "";           // one sentence, no full stop
  const char* shown_default = "";  // shown instead of the field's own initial value
};

// A number of bytes, written "24GiB", "500MB" or "4096". A bare K, M or G is a power of two.
struct ByteSize {
  std::uint64_t bytes = 0;
};

// Parses the text of a value. Throws kInvalidArgument saying what would be right; the caller puts
// the flag's name in front.
void parse_value(std::string_view text, bool& value);
void parse_value(std::string_view text, std::int64_t& value);
void parse_value(std::string_view text, std::uint64_t& value);
void parse_value(std::string_view text, double& value);
void parse_value(std::string_view text, std::string& value);
void parse_value(std::string_view text, ByteSize& value);
template <class T>
void parse_value(std::string_view text, std::optional<T>& value) {
  T inner{};
  parse_value(text, inner);
  value = inner;
}
template <class T>
void parse_value(std::string_view text, std::vector<T>& value) {
  parse_value(text, value.emplace_back());
}

// The text with which --help and `/set` show a value; empty for a value that is not set.
std::string show_value(bool value);
std::string show_value(std::int64_t value);
std::string show_value(std::uint64_t value);
std::string show_value(double value);
std::string show_value(const std::string& value);
std::string show_value(const ByteSize& value);
template <class T>
std::string show_value(const std::optional<T>& value) {
  return value ? show_value(*value) : std::string();
}
template <class T>
std::string show_value(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ' ';
    text += show_value(value);
  }
  return text;
}

// The key of a field in JSON and settings: its long flag without dashes, with underscores
// ("top_k").
std::string option_key(const OptionField& field);

// Sets the field called `key` from text and returns true; returns false where there is no such
// field. Throws as parse_value() does.
template <class Options>
bool set_option(Options& options, std::string_view key, std::string_view text);

// The keys of all fields, for suggestions (base/nearest_name.h).
template <class Options>
std::vector<std::string> option_keys(Options& options);

// --- visitors ---

struct OptionSetter {
  std::string_view key;
  std::string_view text;
  bool found = false;
  void group(const char*) {}
  template <class T>
  void operator()(T& field, const OptionField& about) {
    if (option_key(about) != key) return;
    found = true;
    parse_value(text, field);
  }
};

struct OptionKeys {
  std::vector<std::string> keys;
  void group(const char*) {}
  template <class T>
  void operator()(T&, const OptionField& about) {
    keys.push_back(option_key(about));
  }
};

template <class Options>
bool set_option(Options& options, std::string_view key, std::string_view text) {
  OptionSetter setter{key, text};
  options.visit(setter);
  return setter.found;
}

template <class Options>
std::vector<std::string> option_keys(Options& options) {
  OptionKeys keys;
  options.visit(keys);
  return keys.keys;
}

}  // namespace bl
