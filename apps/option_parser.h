#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/options.h"

namespace bl {

struct CommandExample {
  const char* note;  // what it does
  const char* line;  // the whole command line
};

// What --help says about a command, besides its options.
struct CommandText {
  const char* name;     // such as "eval ppl"
  const char* usage;    // such as "-m DIR --text FILE"
  const char* summary;  // one line
  std::vector<CommandExample> examples;
};

// The values of an option from elsewhere than the command line.
struct OptionTexts {
  std::string where;               // for errors: "FILE:3: port"
  std::vector<std::string> texts;  // of an option that may be given several times
  std::string whole;               // of any other option
  bool is_list = false;            // only an option that may be given several times can take it
};

// The visitor (base/options.h) that fills an options struct from the command line, and writes the
// help text for the same fields.
class OptionParser {
 public:
  explicit OptionParser(CommandText text);
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;
  ~OptionParser();

  void group(const char* name) { group_ = name; }

  template <class T>
  void operator()(T& field, const OptionField& about) {
    const std::string initial =
        *about.shown_default != '\0' ? std::string(about.shown_default) : show_value(field);
    add(about, initial, std::is_same_v<T, bool>, is_list<T>(),
        [&field](std::string_view text) { parse_value(text, field); });
  }

  // Fills the fields. Returns false if --help was given; the help has then been printed. Throws
  // UsageError; for an unknown flag it suggests the nearest known one.
  bool parse(std::span<const std::string> words);
  // After parse(): sets the options that the command line has not given and that `source` knows by
  // their key, the long name with '_' for '-'. Throws UsageError.
  using Source = std::function<std::optional<OptionTexts>(const std::string& key)>;
  void fill(const Source& source);
  // The keys that a source may have.
  std::vector<std::string> keys() const;
  // The text of --help, wrapped to help_width(): examples, usage, then the options in groups.
  std::string help();

 private:
  template <class T>
  static constexpr bool is_list() {
    return requires(T & t) { t.emplace_back(); }
    &&!std::is_same_v<T, std::string>;
  }

  struct Entry {
    OptionField about;
    std::string initial;
    std::string group;
    bool is_switch = false;
    bool is_repeatable = false;
    bool is_given = false;
    std::function<void(std::string_view)> assign;
  };
  void add(const OptionField& about, std::string initial, bool is_switch, bool is_repeatable,
           std::function<void(std::string_view)> assign);
  void add_general();
  std::string head(std::size_t width) const;
  static std::string option_text(const Entry& entry, std::size_t width);
  [[noreturn]] void report_mismatch(const std::string& fault) const;
  [[noreturn]] void report_unknown(const std::string& word) const;

  CommandText text_;
  std::string group_ = "Options";
  std::vector<Entry> entries_;
  bool quiet_ = false;
  bool wants_help_ = false;
};

}  // namespace bl
