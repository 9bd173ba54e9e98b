// --template, --template-vars and --reasoning of run and chat.

#include <gtest/gtest.h>

#include <filesystem>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class TemplateFlagsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = make_tiny_model("template-flags").string();
    work_ = scratch_dir("template-flags-work");
  }
  static std::string file(const std::string& source) {
    static int count = 0;
    const fs::path path = work_ / ("t" + std::to_string(count++) + ".jinja");
    write_file_atomically(path, source);
    return path.string();
  }
  static ProgramResult run(const std::vector<std::string>& more, const std::string& prompt = "ab") {
    std::vector<std::string> words{"run", "-m",       model_, "--backend", "ref", "-n",
                                   "12",  "--greedy", "-q",   "-p",        prompt};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  // What `run` makes of this prompt, without a template.
  static std::string raw(const std::string& prompt) {
    const ProgramResult result = run({}, prompt);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  static std::string chat(const std::vector<std::string>& more) {
    std::vector<std::string> words{"--chat"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  static std::string model_;
  static fs::path work_;
};
std::string TemplateFlagsTest::model_;
fs::path TemplateFlagsTest::work_;

// The raw prompt begins with <s>, as the post-processor says.
constexpr const char* kSwitch =
    "<s>{{ messages[0].content }}{{ extra }}"
    "{% if enable_thinking is defined %}{{ 'on' if enable_thinking else 'off' }}{% endif %}";

TEST_F(TemplateFlagsTest, AFileReplacesTheModelsTemplate) {
  EXPECT_EQ(chat({"--template", file(kSwitch)}), raw("ab"));
  EXPECT_NE(chat({}), raw("ab"));
}

TEST_F(TemplateFlagsTest, VariablesReachTheTemplate) {
  const std::string own = file(kSwitch);
  EXPECT_EQ(chat({"--template", own, "--template-vars", R"({"extra": "cd"})"}), raw("abcd"));
  EXPECT_EQ(chat({"--template", own, "--template-vars", R"({"enable_thinking": true})"}),
            raw("abon"));
}

TEST_F(TemplateFlagsTest, ReasoningIsSwitchedAsTheTemplateHasIt) {
  const std::string own = file(kSwitch);
  EXPECT_EQ(chat({"--template", own, "--reasoning", "on"}), raw("abon"));
  EXPECT_EQ(chat({"--template", own, "--reasoning", "off"}), raw("aboff"));
  EXPECT_EQ(chat({"--template", own, "--reasoning", "auto"}), raw("ab"));
  // The user's own variables win.
  EXPECT_EQ(chat({"--template", own, "--reasoning", "off", "--template-vars",
                  R"({"enable_thinking": true})"}),
            raw("abon"));
  const std::string effort = file(
      "<s>{{ messages[0].content }}{% set e = reasoning_effort | default('low') %}"
      "{% if e not in ['no_think', 'low', 'high'] %}{{ raise_exception('effort') }}{% endif %}"
      "{{ e }}");
  EXPECT_EQ(chat({"--template", effort, "--reasoning", "off"}), raw("abno_think"));
  EXPECT_EQ(chat({"--template", effort, "--reasoning", "on"}), raw("abhigh"));
  for (const char* none : {"<s>{{ messages[0].content }}",
                           "<s>{{ messages[0].content }}{{ reasoning_effort or 'medium' }}"}) {
    const ProgramResult result = run({"--chat", "--template", file(none), "--reasoning", "off"});
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.err.find("no switch for reasoning"), std::string::npos) << result.err;
  }
}

TEST_F(TemplateFlagsTest, ChatHasThemToo) {
  const ProgramResult result =
      run_program({"chat", "-m", model_, "--backend", "ref", "--greedy", "-n", "12", "-q",
                   "--template", file(kSwitch), "--reasoning", "on"},
                  "ab\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, raw("abon"));
}

TEST_F(TemplateFlagsTest, WrongUseIsSaidBeforeTheModelLoads) {
  const std::vector<std::vector<std::string>> wrong{
      {"--chat", "--reasoning", "maybe"},   {"--chat", "--template-vars", "{"},
      {"--chat", "--template-vars", "[1]"}, {"--reasoning", "on"},
      {"--template", file(kSwitch)},
  };
  for (const std::vector<std::string>& words : wrong) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 2) << words.back() << ": " << result.err;
  }
  const ProgramResult absent = run({"--chat", "--template", "/nowhere/t.jinja"});
  EXPECT_EQ(absent.status, 1);
  EXPECT_NE(absent.err.find("/nowhere/t.jinja"), std::string::npos) << absent.err;
  const ProgramResult broken = run({"--chat", "--template", file("{% if %}")});
  EXPECT_EQ(broken.status, 1);
  EXPECT_NE(broken.err.find("line 1"), std::string::npos) << broken.err;
}

}  // namespace
}  // namespace bl::test
