#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "option_parser.h"

namespace bl {

// One subcommand. `execute` takes the words after the command's name; `help` returns the text of
// `bitloom NAME --help`.
struct Command {
  std::string name;
  std::string summary;
  std::function<void(std::span<const std::string> words)> execute;
  std::function<std::string()> help;
};

// Makes a command from its options struct (with `visit`) and the function that runs it. Every
// command also has --help and --quiet.
template <class Options>
Command make_command(const CommandText& text, void (*run)(Options&)) {
  Command command{text.name, text.summary, nullptr, nullptr};
  command.execute = [text, run](std::span<const std::string> words) {
    Options options;
    OptionParser parser(text);
    options.visit(parser);
    if (parser.parse(words)) run(options);
  };
  command.help = [text] {
    Options options;
    OptionParser parser(text);
    options.visit(parser);
    return parser.help();
  };
  return command;
}

// Each is defined in a file of apps/.
Command run_command();
Command chat_command();
Command logits_command();
Command dequant_command();
Command tokenize_command();
Command detokenize_command();
Command template_command();
Command eval_ppl_command();
Command eval_kld_command();
Command eval_compare_command();
Command bench_serve_command();
Command bench_convert_command();
Command bench_command();
Command inspect_command();
Command import_command();
Command batch_command();
Command serve_command();
Command lora_merge_command();
Command convert_command();

}  // namespace bl
