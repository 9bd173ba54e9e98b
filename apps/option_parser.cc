#include "option_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/log.h"
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

constexpr std::size_t kHelpColumn = 34;

}  // namespace

OptionParser::OptionParser(std::string command, std::string usage, std::string summary)
    : command_(std::move(command)), usage_(std::move(usage)), summary_(std::move(summary)) {}

OptionParser::~OptionParser() = default;

void OptionParser::add(const OptionField& about, std::string initial, bool is_switch,
                       bool is_repeatable, std::function<void(std::string_view)> assign) {
  entries_.push_back(
      {about, std::move(initial), group_, is_switch, is_repeatable, std::move(assign)});
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
  for (const Entry& entry : entries_) {
    if (entry.is_switch) {
      app.add_flag_function(entry.about.flag, [&entry](std::int64_t) { entry.assign("true"); });
      continue;
    }
    const auto assign_all = [&entry](const CLI::results_t& texts) {
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
    app.add_option(entry.about.flag, assign_all)
        ->type_size(1)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    fail_usage("{}: {}", command_, error.what());
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

void OptionParser::report_unknown(const std::string& word) const {
  if (!word.starts_with('-')) {
    fail_usage("{}: '{}' is one argument too many (bitloom {} --help)", command_, word, command_);
  }
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const Entry& entry : entries_) {
    if (is_positional(entry.about)) continue;
    for (std::string& name : split_flags(entry.about.flag)) known.push_back(std::move(name));
  }
  const std::string near = nearest_name(flag, known);
  fail_usage("{}: unknown option {}{} (bitloom {} --help)", command_, flag,
             near.empty() ? "" : "; did you mean " + near + "?", command_);
}

std::string OptionParser::help() {
  add_general();
  std::string text = fmt::format("usage: bitloom {} {}\n\n{}.\n", command_, usage_, summary_);
  std::vector<std::string> groups;
  for (const Entry& entry : entries_) {
    if (std::find(groups.begin(), groups.end(), entry.group) == groups.end()) {
      groups.push_back(entry.group);
    }
  }
  for (const std::string& group : groups) {
    text += fmt::format("\n{}:\n", group);
    for (const Entry& entry : entries_) {
      if (entry.group != group) continue;
      std::string line = flag_column(entry.about);
      if (line.size() + 2 > kHelpColumn) {
        text += line + "\n";
        line.clear();
      }
      line.resize(kHelpColumn, ' ');
      line += entry.about.help;
      if (entry.is_repeatable) line += " (repeatable)";
      if (!entry.initial.empty()) line += fmt::format(" [{}]", entry.initial);
      text += line + "\n";
    }
  }
  return text;
}

}  // namespace bl
