// ChatTemplate against jinja2: our own cases (tools/make_template_goldens.py), and, where it is at
// hand, the shared folder of real templates.

#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/data.h"

namespace bl {
namespace {

struct Outcome {
  bool failed = false;
  std::string text;  // or the error's message
};

Outcome outcome(const std::string& source, const OrderedJson& variables) {
  std::optional<std::int64_t> now;
  if (variables.contains("now")) now = variables["now"].get<std::int64_t>();
  try {
    return {false, ChatTemplate(source, "template").render(variables, now)};
  } catch (const Error& error) {
    return {true, error.what()};
  }
}

void expect_golden(const Outcome& got, const OrderedJson& golden, const std::string& what) {
  if (!golden.contains("error")) {
    EXPECT_FALSE(got.failed) << what << ": " << got.text;
    EXPECT_EQ(got.text, golden["text"].get<std::string>()) << what;
    return;
  }
  EXPECT_TRUE(got.failed) << what << " rendered " << got.text;
  if (golden["error"].is_string()) {
    EXPECT_EQ(got.text, golden["error"].get<std::string>()) << what;
  }
}

TEST(ChatTemplate, EqualsJinja2OnOwnCases) {
  std::ifstream in(test::data_dir() / "jinja" / "cases.jsonl");
  ASSERT_TRUE(in);
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    const OrderedJson golden = parse_ordered_json(line, "cases.jsonl");
    const auto source = golden["source"].get<std::string>();
    expect_golden(outcome(source, golden["variables"]), golden, source);
  }
  EXPECT_GE(count, 1600);
}

TEST(ChatTemplate, EqualsJinja2OnRealTemplates) {
  const std::filesystem::path folder = test::shared_dir() / "templates";
  if (test::shared_dir().empty() || !std::filesystem::exists(folder / "goldens.jsonl.xz")) {
    GTEST_SKIP() << "the shared folder of real templates is not here (BITLOOM_DATA)";
  }
  const auto plain = test::scratch_dir("template-goldens") / "goldens.jsonl";
  const std::string unpack =
      "xz -dc '" + (folder / "goldens.jsonl.xz").string() + "' > '" + plain.string() + "'";
  ASSERT_EQ(std::system(unpack.c_str()), 0);
  std::map<std::string, std::string> sources;
  std::ifstream in(plain);
  int count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    const OrderedJson golden = parse_ordered_json(line, "goldens.jsonl");
    const auto name = golden["template"].get<std::string>();
    if (sources.count(name) == 0) sources[name] = read_file(folder / name);
    expect_golden(outcome(sources[name], golden["context"]), golden,
                  name + " " + golden["case"].get<std::string>());
  }
  EXPECT_GE(count, 665);
}

std::string render(const std::string& source,
                   const OrderedJson& variables = OrderedJson::object()) {
  return ChatTemplate(source, "test.jinja").render(variables, 0);
}

ErrorCode refusal_of(const std::string& source,
                     const OrderedJson& variables = OrderedJson::object()) {
  try {
    render(source, variables);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << source << " did not fail";
  return ErrorCode::kIo;
}

std::string message_of(const std::string& source,
                       const OrderedJson& variables = OrderedJson::object()) {
  try {
    render(source, variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(ChatTemplate, SaysWhereAMistakeIs) {
  EXPECT_EQ(refusal_of("a\n\n{{ 1 + }}"), ErrorCode::kInvalidFile);
  EXPECT_EQ(message_of("a\n\n{{ 1 + }}"), "test.jinja, line 3: expected an expression, found '}}'");
  EXPECT_EQ(message_of("a\n{% if x %}\n{% nope %}"), "test.jinja, line 3: unknown tag 'nope'");
  EXPECT_EQ(message_of("\n{{ x.y }}"), "test.jinja, line 2: 'x' is undefined");
  EXPECT_EQ(message_of("\n\n{{ {'a': 1}.b.c }}"),
            "test.jinja, line 3: 'dict object' has no attribute 'b'");
  EXPECT_EQ(refusal_of("{{ x.y }}"), ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, RaisedMessageIsUnchanged) {
  EXPECT_EQ(message_of("{{ raise_exception('roles\nmust \"alternate\"') }}"),
            "roles\nmust \"alternate\"");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const OrderedJson variables =
      parse_ordered_json(R"({"d": {"z": 1, "a": {"y": 2, "b": 3}}})", "v");
  EXPECT_EQ(render("{{ d|tojson }}", variables), R"({"z": 1, "a": {"y": 2, "b": 3}})");
  EXPECT_EQ(render("{% for k in d %}{{ k }}{% endfor %}", variables), "za");
}

TEST(ChatTemplate, ReadsTheClockWithoutNow) {
  const std::string year = ChatTemplate("{{ strftime_now('%Y') }}", "t").render({{"a", 1}}, {});
  EXPECT_GE(year, "2025");
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d') }}"), "1970-01-01");
}

TEST(ChatTemplate, RefusesVariablesThatAreNoObject) {
  const ChatTemplate chat("{{ a }}", "t");
  EXPECT_THROW(chat.render(OrderedJson::array(), 0), Error);
  EXPECT_THROW(chat.render({{"a", "\xff"}}, 0), Error);
  EXPECT_THROW(ChatTemplate("\xc3", "t"), Error);
}

TEST(ChatTemplate, RendersFromManyThreads) {
  const ChatTemplate chat(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content|length %}"
      "{{ m.role ~ ': ' ~ m.content }}{% endfor %}{{ ns.n }}",
      "t");
  OrderedJson variables;
  for (int i = 0; i < 20; ++i) {
    variables["messages"].push_back({{"role", "user"}, {"content", std::string(200, 'x')}});
  }
  const std::string expected = chat.render(variables, 0);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) wrong[t] += chat.render(variables, 0) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace bl
