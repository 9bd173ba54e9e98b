#include <gtest/gtest.h>

#include <sstream>

#include "base/utf8.h"
#include "program.h"

namespace bl::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One line that begins as the contract says.
void expect_one_error_line(const ProgramResult& result) {
  EXPECT_TRUE(result.err.starts_with("bitloom: ")) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.ends_with("\n"));
}

// All commands, in words.
const std::vector<std::vector<std::string>>& all_commands() {
  static const std::vector<std::vector<std::string>> kAll{
      {"run"},           {"chat"},        {"batch"},           {"inspect"},        {"bench"},
      {"eval", "ppl"},   {"eval", "kld"}, {"eval", "compare"}, {"bench", "serve"}, {"import"},
      {"lora", "merge"}, {"tokenize"},    {"detokenize"},      {"template"},       {"logits"},
      {"dequant"}};
  return kAll;
}

std::string help_of(std::vector<std::string> words) {
  words.emplace_back("--help");
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.status, 0) << words[0];
  EXPECT_EQ(result.err, "");
  return result.out;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void expect_to_fit(const std::string& text, std::size_t width) {
  for (const std::string& line : split_lines(text)) {
    EXPECT_LE(count_code_points(line), width) << line;
  }
}

TEST(Usage, VersionGoesToStdout) {
  const ProgramResult version = run_program({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.out.starts_with("bitloom ")) << version.out;
  EXPECT_EQ(version.err, "");
}

TEST(Usage, TheOverviewFitsOneScreen) {
  const ProgramResult help = run_program({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_LE(split_lines(help.out).size(), 40u);
  expect_to_fit(help.out, 100);
  for (const std::vector<std::string>& words : all_commands()) {
    std::string name = "\n ";
    for (const std::string& word : words) name += " " + word;
    EXPECT_TRUE(contains(help.out, name + " ")) << name;
  }
  for (const char* part : {"Generate text:", "Convert models:", "  bitloom run -m DIR -p",
                           "bitloom COMMAND --help", "README.md", "docs/generation.md"}) {
    EXPECT_TRUE(contains(help.out, part)) << part;
  }
  EXPECT_EQ(run_program({"help"}).out, help.out);
}

TEST(Usage, WithoutACommandTheOverviewGoesToStderr) {
  const ProgramResult result = run_program({});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, run_program({"--help"}).out);
}

TEST(Usage, EveryCommandBeginsWithExamples) {
  const std::string all = run_program({"--help-all"}).out;
  for (const std::vector<std::string>& words : all_commands()) {
    const std::string help = help_of(words);
    EXPECT_TRUE(help.starts_with("Examples:\n  # ")) << help;
    std::string name = words[0];
    if (words.size() > 1) name += " " + words[1];
    EXPECT_TRUE(contains(help, "\nusage: bitloom " + name + " ")) << help;
    EXPECT_TRUE(contains(help, "--quiet"));
    expect_to_fit(help, 100);
    EXPECT_TRUE(contains(all, help)) << name;
    std::vector<std::string> asked{"help"};
    asked.insert(asked.end(), words.begin(), words.end());
    EXPECT_EQ(run_program(asked).out, help);
  }
}

// The examples are taken from the help and run: no file is there, so they fail, but as failed
// operations (1) and not as wrong usage (2).
TEST(Usage, ExamplesAreRightUsage) {
  int count = 0;
  for (const std::vector<std::string>& words : all_commands()) {
    std::string text = help_of(words);
    text = text.substr(0, text.find("\nusage:"));
    for (std::size_t at; (at = text.find("|\n")) != text.npos;) text.replace(at, 2, "|");
    for (const std::string& line : split_lines(text)) {
      if (!line.starts_with("  ") || line.starts_with("  #")) continue;
      // A random model of this size is no test.
      if (contains(line, "--random")) continue;
      const ProgramResult result = run_line(line);
      EXPECT_EQ(result.status, 1) << line << "\n" << result.err;
      ++count;
    }
  }
  EXPECT_GE(count, 20);
}

TEST(Usage, HelpIsWrappedToTheTerminal) {
  for (const std::size_t width : {50, 80, 132}) {
    const std::string help = run_in_terminal({"run", "--help"}, width);
    ASSERT_TRUE(contains(help, "--temperature X")) << help;
    bool used = false;
    for (const std::string& line : split_lines(help)) {
      const bool example = line.starts_with("  bitloom ");  // to be copied, so in one piece
      if (!example) {
        EXPECT_LE(count_code_points(line), width) << line;
      }
      used = used || (!example && count_code_points(line) > width - 12);
    }
    EXPECT_TRUE(used) << width;
  }
}

TEST(Usage, HelpShowsDefaultsInGroups) {
  const ProgramResult result = run_program({"run", "--help"});
  EXPECT_TRUE(contains(result.out, "Model:"));
  EXPECT_TRUE(contains(result.out, "[0.8]"));
  EXPECT_TRUE(contains(result.out, "[auto]"));
}

TEST(Usage, WrongUsageIsStatus2) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"rum"}, "did you mean run"},
      {{"Chat"}, "did you mean chat"},
      {{"bench", "serv"}, "did you mean bench serve"},
      {{"eval", "plp"}, "did you mean eval ppl"},
      {{"evla", "ppl"}, "did you mean eval ppl"},
      {{"loar"}, "did you mean lora"},
      {{"--versoin"}, "did you mean --version"},
      {{"run", "-m", "x", "-p", "x", "--backend", "cup"}, "did you mean cpu"},
      {{"inspect", "x", "--backend", "auot"}, "did you mean auto"},
      {{"bench", "--random", "llama3-8b", "--check", "--against", "rfe"}, "did you mean ref"},
      {{"run", "-m", "x", "-p", "x", "--cache", "pf16"}, "did you mean fp16"},
      {{"run", "-m", "x", "-p", "x", "--preset", "gready"}, "did you mean greedy"},
      {{"run", "-m", "x", "-p", "x", "--draft-tokens", "atuo"}, "did you mean auto"},
      {{"run", "-m", "x", "-p", "x", "--sampler-order", "top-k,tempreature"},
       "did you mean temperature"},
      {{"run", "-m", "x", "-p", "x", "--xtc-random", "ture"}, "did you mean true"},
      {{"bench", "--random", "lama3-8b"}, "did you mean llama3-8b"},
      {{"bench", "--random", "llama3-8b", "--format", "elx2"}, "did you mean exl2"},
      {{"--helpp"}, "did you mean --help"},
      {{"eval"}, "eval ppl"},
      {{"run", "--temprature", "1"}, "did you mean --temperature"},
      {{"run", "-m"}, "run: --model needs a value: --model DIR"},
      {{"run", "-m", "x", "--greedy=maybe"}, "run: --greedy takes no value"},
      {{"run", "-m", "x", "--greedy=false"}, "run: --greedy takes no value"},
      {{"run", "-p", "x"}, "-m DIR is missing"},
      {{"run", "-m", "x", "-n", "many"}, "--max-tokens: 'many' is not a whole number"},
      {{"run", "-m", "x", "-p", "y", "-n", "0"}, "-n: 0 should be a number of tokens, 1 or more"},
      {{"run", "-m", "x", "--temperature", "warm"}, "--temperature: 'warm' is not a number"},
      {{"run", "-m", "x", "-p", "x", "--top-p", "1.5"}, "top_p is 1.5"},
      {{"run", "-m", "x", "-p", "x", "--cache", "q9"},
       "--cache: 'q9' is not one of fp32, fp16, fp8, q8"},
      {{"run", "-m", "x", "-p", "x", "--cache", "q4,fp16"},
       "'q4,fp16': different types for keys and values must be two of q8, q7, q6"},
      {{"run", "-m", "x", "-p", "x", "--override", "*.mlp"}, "'*.mlp' is not PATTERN=DIR"},
      {{"run", "-m", "x", "-p", "x", "--override", "=x"}, "is not PATTERN=DIR"},
      {{"inspect", "x", "--cache", "q1"}, "--cache: 'q1' is not one of"},
      {{"run", "-m", "x", "-p", "x", "-f", "y"}, "exclude"},
      {{"run", "-m", "x", "extra"}, "one argument too many"},
      {{"logits", "-m", "x"}, "--ids"},
      {{"bench"}, "either -m DIR or --random"},
      {{"bench", "-m", "x", "--layers", "2"}, "--layers goes with --random"},
      {{"bench", "--random", "llama3-8b", "--layers", "-1"}, "should be 1 or more"},
      {{"bench", "--random", "llama3-8b", "--against", "ref"}, "--against goes with --check"},
      {{"bench", "--random", "tinyllama-1.1b", "--backend", "cpu", "--tune", "/nowhere/plan.json"},
       "cpu chooses nothing by measured tables"},
      {{"bench", "--random", "x", "-p", "0", "-n", "0"}, "nothing to measure"},
      {{"inspect"}, "inspect"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProgramResult result = run_program(arguments, "");
    EXPECT_EQ(result.status, 2) << part << result.err;
    EXPECT_EQ(result.out, "") << part;
    expect_one_error_line(result);
    EXPECT_TRUE(contains(result.err, part)) << part << " not in " << result.err;
  }
}

TEST(Usage, MissingFilesAreStatus1) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"run", "-m", "/nonexistent/model", "-p", "x"},
           {"tokenize", "-m", "/nonexistent/model"},
           {"template", "--template", "/nonexistent/t.jinja"},
           {"inspect", "/nonexistent/model"},
           {"eval", "ppl", "-m", "/nonexistent", "--text", "/nonexistent"},
           {"dequant", "-m", "/nonexistent", "--tensor", "a", "-o", "/tmp/x"},
           {"import", "/nonexistent.gguf", "-o", "/tmp/bitloom-none"}}) {
    const ProgramResult result = run_program(arguments, "{}");
    EXPECT_EQ(result.status, 1) << arguments[0] << result.err;
    EXPECT_EQ(result.out, "");
    expect_one_error_line(result);
    EXPECT_TRUE(contains(result.err, "/nonexistent")) << result.err;
  }
}

}  // namespace
}  // namespace bl::test
