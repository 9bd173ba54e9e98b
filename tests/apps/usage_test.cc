#include <gtest/gtest.h>

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

TEST(Usage, VersionAndHelpGoToStdout) {
  const ProgramResult version = run_program({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.out.starts_with("bitloom ")) << version.out;
  EXPECT_EQ(version.err, "");
  const ProgramResult help = run_program({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const char* command :
       {"run", "chat", "logits", "dequant", "tokenize", "detokenize", "template", "eval ppl",
        "eval kld", "bench", "inspect", "import", "bench serve", "batch"}) {
    EXPECT_TRUE(contains(help.out, std::string("usage: bitloom ") + command)) << command;
  }
  EXPECT_FALSE(contains(help.out, "usage: bitloom serve"));
}

TEST(Usage, EveryCommandExplainsItself) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"run"},
                                             {"chat"},
                                             {"logits"},
                                             {"dequant"},
                                             {"tokenize"},
                                             {"detokenize"},
                                             {"template"},
                                             {"eval", "ppl"},
                                             {"eval", "kld"},
                                             {"bench"},
                                             {"inspect"},
                                             {"import"}}) {
    std::vector<std::string> arguments = words;
    arguments.push_back("--help");
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << words[0];
    EXPECT_TRUE(result.out.starts_with("usage: bitloom " + words[0])) << result.out;
    EXPECT_TRUE(contains(result.out, "--quiet"));
    EXPECT_EQ(result.err, "");
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
      {{}, "no command"},
      {{"rum"}, "did you mean run"},
      {{"--helpp"}, "unknown option"},
      {{"eval"}, "eval ppl"},
      {{"run", "--temprature", "1"}, "did you mean --temperature"},
      {{"run", "-m"}, "run"},
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
