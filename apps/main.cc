// bitloom, the one binary: finds the subcommand and turns errors into exit statuses (0 done, 1 the
// operation failed, 2 wrong usage).

#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "command.h"
#include "results.h"
#include "usage_error.h"

namespace bl {
namespace {

std::string overview(const std::vector<Command>& commands) {
  std::string text =
      "usage: bitloom COMMAND [options]\n\nRuns quantized language models (EXL2, GPTQ, GGUF, plain "
      "safetensors).\n\nCommands:\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  }
  return text +
         "\nbitloom COMMAND --help shows one command, bitloom --version the version.\nResults go "
         "to "
         "stdout, everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong usage.\n";
}

// The overview, then every option of every command, in groups, with defaults.
std::string full_help(const std::vector<Command>& commands) {
  std::string text = overview(commands);
  for (const Command& command : commands) {
    text += fmt::format("\n{}\n{}", std::string(100, '-'), command.help());
  }
  return text;
}

// Returns the command that the first words name ("eval ppl" has two), and how many words that took.
std::pair<const Command*, std::size_t> find_command(const std::vector<Command>& commands,
                                                    const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.push_back(command.name);
    const bool two = words.size() > 1 && command.name == words[0] + " " + words[1];
    if (two || command.name == words[0]) return {&command, two ? 2 : 1};
  }
  std::string family;
  for (const std::string& name : names) {
    if (name.starts_with(words[0] + " ")) family += (family.empty() ? "" : ", ") + name;
  }
  if (!family.empty()) fail_usage("{} needs a subcommand: {}", words[0], family);
  if (words[0].starts_with('-')) fail_usage("unknown option {} (bitloom --help)", words[0]);
  const std::string near = nearest_name(words[0], names);
  fail_usage("unknown command '{}'{} (bitloom --help)", words[0],
             near.empty() ? "" : "; did you mean " + near + "?");
}

void run_words(const std::vector<std::string>& words) {
  const std::vector<Command> commands = all_commands();
  if (words.empty()) fail_usage("no command given (bitloom --help lists them)");
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    write_result(full_help(commands));
  } else if (words[0] == "--version") {
    write_result("bitloom " BL_VERSION "\n");
  } else {
    const auto [command, used] = find_command(commands, words);
    command->execute(std::span(words).subspan(used));
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

std::vector<Command> all_commands() {
  return {run_command(),      chat_command(),        logits_command(),   dequant_command(),
          tokenize_command(), detokenize_command(),  template_command(), eval_ppl_command(),
          eval_kld_command(), bench_serve_command(), bench_command(),    inspect_command(),
          import_command(),   batch_command(),       serve_command(),    lora_merge_command()};
}

}  // namespace bl

int main(int argc, char** argv) { return bl::main_guarded(argc, argv); }
