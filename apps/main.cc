// bitloom, the one binary: finds the subcommand and turns errors into exit statuses (0 done, 1 the
// operation failed, 2 wrong usage).

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "command.h"
#include "help_layout.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

struct CommandGroup {
  const char* purpose;
  std::vector<Command> commands;
};

std::vector<CommandGroup> command_groups() {
  return {
      {"Generate text", {run_command(), chat_command(), serve_command(), batch_command()}},
      {"Look at models and measure them",
       {inspect_command(), bench_command(), bench_serve_command(), bench_convert_command(),
        eval_ppl_command(), eval_kld_command(), eval_compare_command()}},
      {"Convert models", {convert_command(), import_command(), lora_merge_command()}},
      {"Look at single parts",
       {tokenize_command(), detokenize_command(), template_command(), logits_command(),
        dequant_command()}},
  };
}

constexpr const char* kOverviewHead =
    "bitloom runs quantized language models: EXL2, GPTQ, GGUF, and plain safetensors.\n\n"
    "usage: bitloom COMMAND [options]\n";

constexpr const char* kOverviewTail = R"(
Examples (DIR: a Hugging Face folder or a .gguf file):
  bitloom run -m DIR -p "Once upon a time" -n 100    # continue a text
  bitloom chat -m DIR                                # talk with the model
  bitloom inspect DIR --ctx 8192                     # will it fit into memory?

bitloom COMMAND --help   examples and all options of a command; --help-all: of every command
README.md                first steps; docs/generation.md: all that can be asked of an answer
bitloom --version        the version
)";

// One screen: at most 40 lines of 100 columns.
std::string overview() {
  std::string text = kOverviewHead;
  for (const CommandGroup& group : command_groups()) {
    text += fmt::format("\n{}:\n", group.purpose);
    for (const Command& command : group.commands) {
      text += fmt::format("  {:<13} {}\n", command.name, command.summary);
    }
  }
  return text + kOverviewTail;
}

// The overview, then the help of every command.
std::string full_help() {
  std::string text = overview();
  for (const CommandGroup& group : command_groups()) {
    for (const Command& command : group.commands) {
      const std::string rule(help_width(), '-');
      text += fmt::format("\n{}\nbitloom {}\n\n{}", rule, command.name, command.help());
    }
  }
  return text;
}

std::string first_word(const std::string& name) { return name.substr(0, name.find(' ')); }

[[noreturn]] void report_unknown(const std::vector<std::string>& words,
                                 const std::vector<std::string>& names) {
  const std::string& word = words[0];
  if (word.starts_with('-')) {
    fail_usage("unknown option {}{} (bitloom --help)", word,
               did_you_mean(word, {"--help", "--help-all", "--version"}));
  }
  if (words.size() > 1) {
    const std::string two = nearest_name(word + " " + words[1], names);
    if (two.find(' ') != two.npos) {
      fail_usage("unknown command '{} {}'; did you mean {}? (bitloom --help)", word, words[1], two);
    }
  }
  std::vector<std::string> family;
  std::vector<std::string> first_words;
  for (const std::string& name : names) {
    first_words.push_back(first_word(name));
    if (first_words.back() == word) family.push_back(name);
  }
  if (!family.empty()) fail_usage("{} needs a subcommand: {}", word, fmt::join(family, ", "));
  fail_usage("unknown command '{}'{} (bitloom --help)", word, did_you_mean(word, first_words));
}

// A command, and how many words its name took.
struct FoundCommand {
  Command command;
  std::size_t words = 0;
};

// Finds the command that the first words name ("eval ppl" has two). Throws UsageError.
FoundCommand find_command(const std::vector<std::string>& words) {
  std::optional<FoundCommand> found;
  std::vector<std::string> names;
  std::vector<std::string> second_words;  // of commands that begin with the first word
  for (const CommandGroup& group : command_groups()) {
    for (const Command& command : group.commands) {
      names.push_back(command.name);
      if (words.size() > 1 && command.name == words[0] + " " + words[1]) return {command, 2};
      if (command.name == words[0]) found = {command, 1};
      if (command.name.starts_with(words[0] + " ")) {
        second_words.push_back(command.name.substr(words[0].size() + 1));
      }
    }
  }
  if (!found) report_unknown(words, names);
  // "bench serv" is `bench` with one argument too many, but meant otherwise.
  if (words.size() > 1 && !nearest_name(words[1], second_words).empty()) {
    report_unknown(words, names);
  }
  return *found;
}

void run_words(std::vector<std::string> words) {
  // "help run" is "run --help".
  if (words.size() > 1 && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    write_result(overview());
  } else if (words[0] == "--help-all") {
    write_result(full_help());
  } else if (words[0] == "--version") {
    write_result("bitloom " BL_VERSION "\n");
  } else {
    const FoundCommand found = find_command(words);
    found.command.execute(std::span(words).subspan(found.words));
  }
  flush_results();
}

// Prints the message as one line, even if a name from a file contains control characters.
int report(int status, std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  std::fflush(stdout);
  std::fprintf(stderr, "bitloom: %s\n", message.c_str());
  return status;
}

int main_guarded(int count, char** arguments) {
  try {
    install_interrupt_handler();
    if (count < 2) {  // wrong usage, so that a script notices; people see what is there
      std::fputs(overview().c_str(), stderr);
      return 2;
    }
    run_words(std::vector<std::string>(arguments + 1, arguments + count));
    return 0;
  } catch (const UsageError& error) {
    return report(2, error.what());
  } catch (const Error& error) {
    return report(1, error.what());
  } catch (const std::bad_alloc&) {
    return report(1, "out of memory; use a smaller --ctx or --cache q4");
  } catch (const std::exception& error) {
    return report(1, error.what());
  }
}

}  // namespace

}  // namespace bl

int main(int argc, char** argv) { return bl::main_guarded(argc, argv); }
