// Conversations with tool calls, as OpenAI's clients send them, in the templates of many models.

#include "api/chat_prompt.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "../engine/tiny_model.h"
#include "api/chat_messages.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/model_text.h"
#include "support/data.h"

namespace bl::openai {
namespace {

namespace fs = std::filesystem;

std::string python_json(const OrderedJson& value) {
  return ChatTemplate("{{ value | tojson }}", "t").render({{"value", value}}, 0);
}

class ChatPrompt : public testing::Test {
 protected:
  static ModelText text_of(const std::string& source) {
    static const fs::path model = test::make_tiny_model("chat-prompt");
    return ModelText(Tokenizer::load(model), "tiny",
                     std::make_shared<const ChatTemplate>(source, "template"));
  }
  // The prompt of a conversation with one earlier call.
  static std::string prompt(const std::string& source, const OrderedJson& arguments,
                            const OrderedJson& content = nullptr) {
    OrderedJson call = {{"id", "call_1"}, {"type", "function"}};
    call["function"] = {{"name", "f"}, {"arguments", arguments}};
    OrderedJson assistant = {{"role", "assistant"}, {"content", content}};
    assistant["tool_calls"] = OrderedJson::array({call});
    OrderedJson variables;
    variables["messages"] = template_messages(
        OrderedJson::array({{{"role", "user"}, {"content", "q"}},
                            assistant,
                            {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "sunny"}}}));
    return render_chat(text_of(source), variables).text;
  }
  // A template that writes each message's content, and for each call what `body` says of `a`.
  static std::string calls(const std::string& body) {
    return "{% for m in messages %}[{{ m.content or '' }}]{% for c in m.tool_calls or [] %}"
           "{% set a = c.function.arguments %}<" +
           body + ">{% endfor %}{% endfor %}";
  }
};

constexpr const char* kArguments = R"({"city": "Rome", "days": 2})";

TEST_F(ChatPrompt, ArgumentsAsTextAreTheObjectTheySpell) {
  for (const auto& [body, written] : std::vector<std::pair<const char*, const char*>>{
           {"{% for k, v in a | items %}{{ k }}={{ v }};{% endfor %}", "city=Rome;days=2;"},
           {"{% for k in a %}{{ k }}={{ a[k] }};{% endfor %}", "city=Rome;days=2;"},
           {"{{ a | tojson }}", kArguments},
           {"{{ {'n': 1, 'a': a} | tojson }}", R"({"n": 1, "a": {"city": "Rome", "days": 2}})"},
           {"{{ a if a is string else a | tojson }}", kArguments},
           {"{% if a is not mapping %}{{ raise_exception('no') }}{% endif %}{{ a.city }}", "Rome"},
           {"{{ a.days + 1 }}", "3"}}) {
    const std::string expected = "[q][]<" + std::string(written) + ">[sunny]";
    EXPECT_EQ(prompt(calls(body), kArguments), expected) << body;
    EXPECT_EQ(prompt(calls(body), parse_ordered_json(kArguments, "a")), expected) << body;
  }
}

TEST_F(ChatPrompt, ATemplateThatWorksWithTheTextGetsTheText) {
  for (const char* body : {"{{ '' + a + '' }}", "{{ a }}", "{{ '' ~ a }}", "{{ a | trim }}",
                           "{% if a is mapping %}{{ raise_exception('no') }}{% endif %}{{ a }}"}) {
    const std::string expected = "[q][]<" + std::string(kArguments) + ">[sunny]";
    EXPECT_EQ(prompt(calls(body), kArguments), expected) << body;
    EXPECT_EQ(prompt(calls(body), parse_ordered_json(kArguments, "a")), expected) << body;
    EXPECT_EQ(prompt(calls(body), nullptr), "[q][]<{}>[sunny]") << body;
    // It stays as it was written.
    EXPECT_EQ(prompt(calls(body), R"({"a":1.50})"), R"([q][]<{"a":1.50}>[sunny])") << body;
  }
}

TEST_F(ChatPrompt, TextThatIsNotJsonIsNeverAnError) {
  for (const char* broken :
       {"Rome", R"({"city": "Ro)", R"({"city": 1e999})", "\\ud800", "{'a': 1}"}) {
    EXPECT_EQ(prompt(calls("{{ a }}"), broken), "[q][]<" + std::string(broken) + ">[sunny]");
    EXPECT_EQ(prompt(calls("{{ a if a is string else a | tojson }}"), broken),
              "[q][]<" + std::string(broken) + ">[sunny]");
    EXPECT_EQ(prompt(calls("{{ a | tojson }}"), broken),
              "[q][]<" + python_json(broken) + ">[sunny]");
    // The template needs an object.
    EXPECT_EQ(prompt(calls("{% for k, v in a | items %}{{ k }}={{ v }}{% endfor %}"), broken),
              "[q][]<arguments=" + std::string(broken) + ">[sunny]");
  }
  const std::string deep(100000, '[');
  EXPECT_EQ(prompt(calls("{{ a }}"), deep), "[q][]<" + deep + ">[sunny]");
}

TEST_F(ChatPrompt, MissingArgumentsAreAnEmptyObject) {
  for (const OrderedJson& none : {OrderedJson(), OrderedJson(""), OrderedJson(" "),
                                  OrderedJson("{}"), OrderedJson::object()}) {
    EXPECT_EQ(prompt(calls("{{ a | tojson }}"), none), "[q][]<{}>[sunny]");
    EXPECT_EQ(prompt(calls("{% for k, v in a | items %}{{ k }}{% endfor %}"), none),
              "[q][]<>[sunny]");
  }
}

// "None" in a prompt is nobody's intention, and neither is a template that fails.
TEST_F(ChatPrompt, NullContentIsAnEmptyTextUnlessTheTemplateTestsForIt) {
  const auto contents = [](const std::string& body) {
    return "{% for m in messages %}{% set c = m.content %}[" + body + "]{% endfor %}";
  };
  const std::string empty = "[q][][sunny]";
  for (const char* joins :
       {"{{ c }}", "{{ '' + c }}", "{{ '' ~ c }}", "{{ c | trim }}", "{{ c.strip() }}",
        "{{ c or '' }}", "{{ c if c else '' }}", "{% if c is defined %}{{ c }}{% endif %}"}) {
    EXPECT_EQ(prompt(contents(joins), kArguments), empty) << joins;
  }
  EXPECT_EQ(prompt(contents("{% if c is none %}calls{% else %}{{ c }}{% endif %}"), kArguments),
            "[q][calls][sunny]");
  EXPECT_EQ(prompt(contents("{% if c is string %}{{ c }}{% else %}calls{% endif %}"), kArguments),
            "[q][calls][sunny]");
  EXPECT_EQ(prompt(contents("{{ c | tojson }}"), kArguments), R"(["q"][null]["sunny"])");
  // Words of the conversation decide nothing.
  EXPECT_EQ(prompt(contents("{% if c is none %}calls{{ m.tool_calls | tojson }}{% else %}{{ c }}"
                            "{% endif %}"),
                   R"({"a": "None"})")
                .substr(0, 9),
            "[q][calls");
  EXPECT_EQ(prompt(contents("{{ c }}"), kArguments, "None"), "[q][None][sunny]");
}

TEST_F(ChatPrompt, TheErrorOfATemplateIsItsOwn) {
  try {
    prompt("{{ raise_exception('Only user, please.') }}", kArguments);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "Only user, please.");
  }
}

TEST_F(ChatPrompt, AgreesOnTheReportedTemplates) {
  const fs::path folder = test::shared_dir() / "reports" / "tool-call-arguments-as-text";
  if (test::shared_dir().empty() || !fs::exists(folder)) {
    GTEST_SKIP() << "the shared folder of reports is not here (BITLOOM_DATA)";
  }
  std::ifstream in(folder / "in.jsonl");
  std::vector<OrderedJson> messages;
  for (std::string line; std::getline(in, line);) {
    messages.push_back(template_messages(parse_ordered_json(line, "in")["body"]["messages"]));
  }
  ASSERT_EQ(messages.size(), 2u);
  for (const char* name : {"items.jinja", "tojson.jinja"}) {
    const ModelText text = text_of(read_file(folder / name));
    const std::string prompt = render_chat(text, {{"messages", messages[0]}}).text;
    EXPECT_EQ(prompt, render_chat(text, {{"messages", messages[1]}}).text) << name;
    EXPECT_NE(prompt.find("Rome"), prompt.npos) << prompt;
    EXPECT_EQ(prompt.find('\\'), prompt.npos) << prompt;
  }
}

// transformers passes objects, and so do the goldens. Spelled as text, they must give the prompt.
TEST_F(ChatPrompt, RealTemplatesMakeTheSameOfArgumentsAsText) {
  const fs::path folder = test::shared_dir() / "templates";
  if (test::shared_dir().empty() || !fs::exists(folder / "goldens.jsonl.xz")) {
    GTEST_SKIP() << "the shared folder of real templates is not here (BITLOOM_DATA)";
  }
  const fs::path plain = test::scratch_dir("chat-prompt-goldens") / "goldens.jsonl";
  const std::string unpack =
      "xz -dc '" + (folder / "goldens.jsonl.xz").string() + "' > '" + plain.string() + "'";
  ASSERT_EQ(std::system(unpack.c_str()), 0);
  std::map<std::string, std::unique_ptr<ModelText>> texts;
  std::ifstream in(plain);
  int count = 0;
  for (std::string line; std::getline(in, line);) {
    OrderedJson golden = parse_ordered_json(line, "goldens.jsonl");
    OrderedJson& context = golden["context"];
    if (!golden.contains("text") || !context.contains("messages")) continue;
    bool has_calls = false;
    for (OrderedJson& message : context["messages"]) {
      if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
      for (OrderedJson& call : message["tool_calls"]) {
        OrderedJson& function = call.contains("function") ? call["function"] : call;
        if (!function.contains("arguments") || function["arguments"].is_string()) continue;
        function["arguments"] = python_json(function["arguments"]);
        has_calls = true;
      }
    }
    if (!has_calls) continue;
    const auto name = golden["template"].get<std::string>();
    std::unique_ptr<ModelText>& text = texts[name];
    if (!text) text = std::make_unique<ModelText>(text_of(read_file(folder / name)));
    std::optional<std::int64_t> now;
    if (context.contains("now")) now = context["now"].get<std::int64_t>();
    EXPECT_EQ(render_chat(*text, context, {.now = now}).text, golden["text"].get<std::string>())
        << name << " " << golden["case"];
    ++count;
  }
  EXPECT_GE(count, 20);
}

std::string prompt_of(const ModelText& text, const char* messages) {
  OrderedJson variables;
  variables["messages"] = template_messages(OrderedJson::parse(messages));
  return render_chat(text, variables).text;
}

constexpr const char* kSystemsAnywhere = R"([{"role":"system","content":"S"},
    {"role":"system","content":"T"},{"role":"user","content":"a"},{"role":"system","content":"b"},
    {"role":"user","content":"c"},{"role":"assistant","content":"d"},
    {"role":"system","content":"e"}])";

TEST_F(ChatPrompt, SystemMessagesThatATemplateRefusesBecomeUsersTexts) {
  const auto refusing = [](const std::string& condition) {
    return text_of("{% for m in messages %}{% if " + condition +
                   " %}{{ raise_exception('no system message here') }}{% endif %}"
                   "{{ m.role }}:{{ m.content }}|{% endfor %}");
  };
  EXPECT_EQ(prompt_of(refusing("false"), kSystemsAnywhere),
            "system:S|system:T|user:a|system:b|user:c|assistant:d|system:e|");
  EXPECT_EQ(prompt_of(refusing("m.role == 'system' and not loop.first"), kSystemsAnywhere),
            "system:S\n\nT|user:a\n\nb\n\nc|assistant:d|user:e|");
  EXPECT_EQ(prompt_of(refusing("m.role == 'system'"), kSystemsAnywhere),
            "user:S\n\nT\n\na\n\nb\n\nc|assistant:d|user:e|");
  EXPECT_THROW(prompt_of(refusing("m.role == 'user'"), kSystemsAnywhere), Error);
}

}  // namespace
}  // namespace bl::openai
