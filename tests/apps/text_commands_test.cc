#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(parse_json(text.substr(begin, end - begin), "line"));
    begin = end + 1;
  }
  return lines;
}

class TextCommands : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = make_tiny_model("text-commands").string(); }
  static std::string model_;
};
std::string TextCommands::model_;

TEST_F(TextCommands, TokenizeAnswersLineByLine) {
  const ProgramResult result = run_program({"tokenize", "-m", model_},
                                           "{\"text\": \"AB\", \"special\": true}\n"
                                           "{\"text\": \"AB\", \"special\": false}\n\n"
                                           "{\"text\": \"A</s>B\", \"special\": false}\n"
                                           "{\"text\": \"\"}\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::vector<Json> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], Json::parse(R"({"ids": [256, 65, 66]})"));
  EXPECT_EQ(lines[1], Json::parse(R"({"ids": [65, 66]})"));
  EXPECT_EQ(lines[2], Json::parse(R"({"ids": [65, 257, 66]})"));
  EXPECT_EQ(lines[3], Json::parse(R"({"ids": [256]})"));
}

TEST_F(TextCommands, DetokenizeAnswersLineByLine) {
  const ProgramResult result =
      run_program({"detokenize", "-m", model_},
                  "{\"ids\": [256, 65, 195, 164, 257], \"skip_special\": false}\n"
                  "{\"ids\": [256, 65, 195, 164, 257], \"skip_special\": true}\n"
                  "{\"ids\": [], \"skip_special\": true}");
  EXPECT_EQ(result.status, 0) << result.err;
  const std::vector<Json> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["text"], "<s>A\xc3\xa4</s>");
  EXPECT_EQ(lines[1]["text"], "A\xc3\xa4");
  EXPECT_EQ(lines[2]["text"], "");
}

TEST_F(TextCommands, WrongLinesAreNamedAndEarlierOnesAnswered) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"tokenize", "{\"text\": 5}"},
      {"tokenize", "{}"},
      {"tokenize", "[1]"},
      {"tokenize", "{\"text\": \"a\""},
      {"tokenize", "{\"text\": \"a\", \"special\": 1}"},
      {"detokenize", "{\"ids\": \"a\"}"},
      {"detokenize", "{\"ids\": [1.5]}"},
      {"detokenize", "{\"ids\": [-1]}"},
      {"detokenize", "{\"ids\": [99999]}"},
      {"detokenize", "{\"ids\": [18446744073709551615]}"},
  };
  for (const auto& [command, line] : cases) {
    const std::string good =
        command == "tokenize" ? "{\"text\": \"A\", \"special\": false}\n" : "{\"ids\": [65]}\n";
    const ProgramResult result = run_program({command, "-m", model_}, good + line + "\n" + good);
    EXPECT_EQ(result.status, 1) << line;
    EXPECT_EQ(lines_of(result.out).size(), 1u) << line;
    EXPECT_NE(result.err.find("line 2 of standard input"), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(TextCommands, TemplateRendersTheModels) {
  const std::string variables =
      R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})";
  const ProgramResult result = run_program({"template", "-m", model_}, variables);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "<s><|user|>Hi<|bot|>");
  const ProgramResult other =
      run_program({"template", "-m", model_},
                  R"({"messages": [{"role": "user", "content": "Hi"}], "bos_token": "[BOS]"})");
  EXPECT_EQ(other.out, "[BOS]<|user|>Hi");
}

TEST_F(TextCommands, TemplateFileAndLines) {
  const auto folder = scratch_dir("template-file");
  const std::string path = (folder / "t.jinja").string();
  write_file_atomically(
      path,
      "{% if x is not defined %}{{ raise_exception('no x given') }}{% endif %}{{ x }}|"
      "{{ bos_token }}|{{ strftime_now('%Y-%m-%d') }}");
  const ProgramResult result = run_program(
      {"template", "--template", path, "--jsonl"},
      "{\"x\": 1, \"now\": 0, \"bos_token\": \"B\"}\n{}\n{\"x\": \"\\u00e4\", \"now\": 86400}\n");
  EXPECT_EQ(result.status, 0) << result.err;
  const std::vector<Json> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["text"], "1|B|1970-01-01");
  EXPECT_EQ(lines[1]["error"], "no x given");
  EXPECT_EQ(lines[2]["text"], "\xc3\xa4||1970-01-02");
  // The model's special tokens with a template of one's own.
  const ProgramResult with_model =
      run_program({"template", "-m", model_, "--template", path}, "{\"x\": 2, \"now\": 0}");
  EXPECT_EQ(with_model.out, "2|<s>|1970-01-01");
  const ProgramResult raised = run_program({"template", "--template", path}, "{}");
  EXPECT_EQ(raised.status, 1);
  EXPECT_EQ(raised.out, "");
  EXPECT_EQ(raised.err, "bitloom: no x given\n");
}

TEST_F(TextCommands, BrokenInputOfTemplate) {
  for (const char* input : {"", "[1]", "{\"a\": ", "nonsense"}) {
    const ProgramResult result = run_program({"template", "-m", model_}, input);
    EXPECT_EQ(result.status, 1) << input;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("bitloom: ")) << result.err;
  }
}

}  // namespace
}  // namespace bl::test
