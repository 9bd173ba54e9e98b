#include "option_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/nearest_name.h"
#include "help_layout.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

std::vector<std::string> split_flags(const char* flag) {
  std::vector<std::string> flags;
  std::string_view rest = flag;
  while (true) {
    const auto comma = rest.find(',');
    flags.emplace_back(rest.substr(0, comma));
    if (comma == rest.npos) return flags;
    rest.remove_prefix(comma + 1);
  }
}

bool is_positional(const OptionField& about) { return *about.flag != '-'; }

// Returns "  -n, --tokens N"; all long flags start in the same column.
std::string flag_column(const OptionField& about) {
  if (is_positional(about)) return fmt::format("  {}", about.value);
  const std::vector<std::string> flags = split_flags(about.flag);
  std::string text = flags.front().starts_with("--") ? "      " : "  ";
  for (std::size_t i = 0; i < flags.size(); ++i) text += (i == 0 ? "" : ", ") + flags[i];
  if (*about.value != '\0') text += fmt::format(" {}", about.value);
  return text;
}

// The column in which the help of an option begins. A narrow terminal has no room for two columns,
// so that the help stands below the flag.
std::size_t help_column(std::size_t width) { return width < 72 ? 10 : 34; }

// The names by which a source may know an option: its long flags, without those that are for the
// command line alone.
std::vector<std::string> keys_of(const OptionField& about) {
  std::vector<std::string> keys;
  for (const std::string& flag : split_flags(about.flag)) {
    if (!flag.starts_with("--") || flag == "--help" || flag == "--config" ||
        flag == "--print-config") {
      continue;
    }
    std::string key = flag.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace

OptionParser::OptionParser(CommandText text) : text_(std::move(text)) {}

OptionParser::~OptionParser() = default;

void OptionParser::add(const OptionField& about, std::string initial, bool is_switch,
                       bool is_repeatable, std::function<void(std::string_view)> assign) {
  entries_.push_back(
      {about, std::move(initial), group_, is_switch, is_repeatable, false, std::move(assign)});
}

// Adds the options of every command, as the last group.
void OptionParser::add_general() {
  if (group_ == "General") return;
  group("General");
  (*this)(quiet_, {"-q,--quiet", "", "print no progress, notes or statistics on stderr"});
  (*this)(wants_help_, {"-h,--help", "", "print this help"});
}

bool OptionParser::parse(std::span<const std::string> words) {
  add_general();
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (Entry& entry : entries_) {
    if (entry.is_switch) {
      const auto switch_on = [&entry](std::int64_t) {
        entry.is_given = true;
        entry.assign("true");
      };
      app.add_flag_function(entry.about.flag, switch_on)->disable_flag_override();
      continue;
    }
    const auto assign_all = [&entry](const CLI::results_t& texts) {
      entry.is_given = true;
      try {
        if (entry.is_repeatable) {
          for (const std::string& text : texts) entry.assign(text);
        } else {
          entry.assign(texts.back());
        }
      } catch (const Error& error) {
        const std::vector<std::string> flags = split_flags(entry.about.flag);
        fail_usage("{}: {}", flags.back(), error.what());
      }
      return true;
    };
    const bool takes_many = entry.is_repeatable && is_positional(entry.about);
    app.add_option(entry.about.flag, assign_all)
        ->type_size(1)
        ->expected(takes_many ? -1 : 1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch& error) {
    report_mismatch(error.what());
  } catch (const CLI::ParseError& error) {
    fail_usage("{}: {} (bitloom {} --help)", text_.name, error.what(), text_.name);
  }
  if (wants_help_) {
    write_result(help());
    flush_results();
    return false;
  }
  if (const auto extra = app.remaining(); !extra.empty()) report_unknown(extra.front());
  set_quiet(quiet_);
  return true;
}

std::vector<std::string> OptionParser::keys() const {
  std::vector<std::string> all;
  for (const Entry& entry : entries_) {
    for (std::string& key : keys_of(entry.about)) all.push_back(std::move(key));
  }
  return all;
}

void OptionParser::fill(const Source& source) {
  for (Entry& entry : entries_) {
    if (entry.is_given) continue;
    for (const std::string& key : keys_of(entry.about)) {
      const std::optional<OptionTexts> found = source(key);
      if (!found) continue;
      if (found->is_list && !entry.is_repeatable) {
        fail_usage("{}: a list, but this option has one value", found->where);
      }
      try {
        if (entry.is_repeatable) {
          for (const std::string& text : found->texts) entry.assign(text);
        } else {
          entry.assign(found->whole);
        }
      } catch (const Error& error) {
        fail_usage("{}: {}", found->where, error.what());
      }
      break;
    }
  }
  set_quiet(quiet_);
}

// `fault` begins with the name of the option, which CLI11 writes with or without its dashes.
void OptionParser::report_mismatch(const std::string& fault) const {
  const std::string name = fault.substr(0, fault.find_first_of(": "));
  for (const Entry& entry : entries_) {
    for (const std::string& flag : split_flags(entry.about.flag)) {
      if (flag != name && flag != "--" + name && flag != "-" + name) continue;
      if (entry.is_switch) {
        fail_usage("{}: {} takes no value (bitloom {} --help)", text_.name, flag, text_.name);
      }
      fail_usage("{}: {} needs a value: {} {} (bitloom {} --help)", text_.name, flag, flag,
                 entry.about.value, text_.name);
    }
  }
  fail_usage("{}: {} (bitloom {} --help)", text_.name, fault, text_.name);
}

void OptionParser::report_unknown(const std::string& word) const {
  if (!word.starts_with('-')) {
    fail_usage("{}: '{}' is one argument too many (bitloom {} --help)", text_.name, word,
               text_.name);
  }
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const Entry& entry : entries_) {
    if (is_positional(entry.about)) continue;
    for (std::string& name : split_flags(entry.about.flag)) known.push_back(std::move(name));
  }
  fail_usage("{}: unknown option {}{} (bitloom {} --help)", text_.name, flag,
             did_you_mean(flag, known), text_.name);
}

std::string OptionParser::head(std::size_t width) const {
  std::string text = "Examples:\n";
  for (const CommandExample& example : text_.examples) {
    text += "  # " + wrapped(example.note, {.first = 4, .indent = 4, .width = width}) + "\n";
    text += fmt::format("  {}\n", example.line);
  }
  const std::string usage = fmt::format("usage: bitloom {} {}", text_.name, text_.usage);
  text += "\n" + wrapped(usage, {.indent = 9, .width = width, .keep_brackets = true}) + "\n\n";
  return text + wrapped(fmt::format("{}.", text_.summary), {.width = width}) + "\n";
}

std::string OptionParser::option_text(const Entry& entry, std::size_t width) {
  std::string text = flag_column(entry.about);
  const std::size_t indent = help_column(width);
  if (columns_of(text) + 2 > indent) text += "\n" + std::string(indent, ' ');
  text.resize(std::max(text.size(), indent), ' ');
  std::string help = entry.about.help;
  if (entry.is_repeatable) help += " (repeatable)";
  if (!entry.initial.empty()) help += fmt::format(" [{}]", entry.initial);
  return text + wrapped(help, {.first = indent, .indent = indent, .width = width}) + "\n";
}

std::string OptionParser::help() {
  add_general();
  const std::size_t width = help_width();
  std::string text = head(width);
  std::vector<std::string> groups;
  for (const Entry& entry : entries_) {
    if (std::find(groups.begin(), groups.end(), entry.group) == groups.end()) {
      groups.push_back(entry.group);
    }
  }
  for (const std::string& group : groups) {
    text += "\n" + wrapped(group + ":", {.indent = 2, .width = width}) + "\n";
    for (const Entry& entry : entries_) {
      if (entry.group == group) text += option_text(entry, width);
    }
  }
  return text;
}

}  // namespace bl
