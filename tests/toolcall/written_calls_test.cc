// Calls with random arguments, written as each format's document says, are read back exactly.

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "offered_tools.h"
#include "reading.h"
#include "toolcall/call_syntax.h"
#include "toolcall/detect_format.h"

namespace bl {
namespace {

class RandomArguments {
 public:
  explicit RandomArguments(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }
  // Text without a format's closing tags and, where `line_ends` is false, on one line.
  std::string text(bool line_ends) {
    static const char* const kParts[] = {"blue",  "  two words", "{\"a\": 1}", "true",
                                         "7",     "it's",        "\"quoted\"", "Ünïcode 🙂",
                                         "a < b", "<tool_call>", "C:\\new",    "[1, 2]",
                                         "null",  "x=1",         "]}"};
    std::string text;
    for (std::size_t n = 1 + below(3); n > 0; --n) text += kParts[below(std::size(kParts))];
    if (line_ends && below(3) == 0) text += "\n\nnext line";
    return text;
  }
  OrderedJson arguments(bool line_ends) {
    OrderedJson all;
    all["colour"] = text(line_ends);
    if (below(2) == 0) all["coats"] = std::int64_t{-9007199254740993};
    if (below(2) == 0) all["litres"] = 1234567.875;
    if (below(2) == 0) all["gate"] = below(2) == 0;
    if (below(2) == 0) all["boards"] = {text(false), text(false)};
    if (below(2) == 0) all["size"] = {{"wide", 3}, {"note", text(false)}, {"parts", {1.5, 2.5}}};
    if (below(2) == 0) all["limit"] = 12;
    return all;
  }

 private:
  std::mt19937_64 random_;
};

std::string python_text(const OrderedJson& value) {
  if (value.is_string()) {
    std::string text = "'";
    for (const char byte : value.get_ref<const std::string&>()) {
      if (byte == '\'' || byte == '\\') text += '\\';
      text += byte == '\n' ? std::string("\\n") : std::string(1, byte);
    }
    return text + "'";
  }
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (!value.is_structured()) return json_text(value);
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += python_text(key) + ": ";
    text += python_text(item);
  }
  return value.is_object() ? '{' + text + '}' : '[' + text + ']';
}

std::string braces_text(const OrderedJson& value, const std::string& delimiter) {
  if (value.is_string()) return delimiter + value.get<std::string>() + delimiter;
  if (!value.is_structured()) return json_text(value);
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ",";
    if (value.is_object()) text += key + ":";
    text += braces_text(item, delimiter);
  }
  return value.is_object() ? '{' + text + '}' : '[' + text + ']';
}

std::string elements_text(const OrderedJson& value, const std::string& prefix) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_structured()) return json_text(value);
  std::string text;
  for (const auto& [key, item] : value.items()) {
    const std::string name = value.is_array() ? "item" : key;
    text += prefix + '<' + name + '>' + elements_text(item, prefix) + prefix + "</" + name + '>';
  }
  return text;
}

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string written_arguments(const AnswerFormat& format, const CallSyntax& syntax,
                              const OrderedJson& arguments) {
  if (syntax.form == ArgumentsForm::kJson) return json_text(arguments);
  if (syntax.form == ArgumentsForm::kBraces) return braces_text(arguments, syntax.string_delimiter);
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    if (syntax.form == ArgumentsForm::kPython) {
      text += (text.empty() ? "" : ", ") + key + '=' + python_text(value);
      continue;
    }
    std::string bare = value.is_string() ? value.get<std::string>() : json_text(value);
    if (!format.element_prefix.empty()) bare = elements_text(value, format.element_prefix);
    std::string parameter = write_parameter(syntax, key, bare);
    replace_all(parameter, "{is_string}", value.is_string() ? "true" : "false");
    replace_all(parameter, "{json_type}", value.is_string() ? "string" : "object");
    text += parameter;
  }
  return text;
}

struct WrittenAnswer {
  std::string text;
  std::vector<std::pair<std::string, Json>> calls;
};

WrittenAnswer write_answer(const AnswerFormat& format, std::uint64_t seed) {
  RandomArguments random(seed);
  const CallSyntax syntax = call_syntax(format);
  WrittenAnswer answer;
  answer.text = syntax.open;
  const std::size_t count = 1 + random.below(3);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) answer.text += syntax.between;
    const bool painted = random.below(4) != 0;
    const std::string name = painted ? "paint_fence" : "count-boards";
    const OrderedJson arguments = painted ? random.arguments(true) : OrderedJson::object();
    std::string call = write_call(syntax, name, written_arguments(format, syntax, arguments));
    replace_all(call, "{index}", std::to_string(i));
    replace_all(call, "{number}", std::to_string(i + 1));
    replace_all(call, "{id}", "call" + std::to_string(i));
    answer.text += call;
    answer.calls.emplace_back(name, parse_json(json_text(arguments), "arguments"));
  }
  answer.text += syntax.close;
  return answer;
}

class WrittenCalls : public testing::TestWithParam<std::string> {};

TEST_P(WrittenCalls, AreReadBack) {
  const AnswerFormat format = named_answer_format(GetParam());
  const ToolSet tools(test::offered_tools());
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const WrittenAnswer written = write_answer(format, seed);
    const bool talks = seed % 2 == 0 && !format.calls.front().opening().empty();
    const std::string text = (talks ? "First, a word.\n" : "") + written.text;
    const auto parser = [&] { return AnswerParser(format, tools, {}); };
    const std::vector<AnswerEvent> events = test::read_whole(parser(), text);
    const ParsedAnswer answer = test::parsed(events);
    ASSERT_EQ(answer.calls.size(), written.calls.size()) << text << '\n' << test::shown(events);
    for (std::size_t i = 0; i < answer.calls.size(); ++i) {
      EXPECT_EQ(answer.calls[i].name, written.calls[i].first);
      EXPECT_TRUE(answer.calls[i].complete) << text;
      EXPECT_EQ(parse_json(answer.calls[i].arguments, "read"), written.calls[i].second)
          << text << '\n'
          << answer.calls[i].arguments;
    }
    EXPECT_EQ(answer.content, talks ? "First, a word." : "") << text;
    EXPECT_EQ(test::read_bytes(parser(), text), events) << text;
    EXPECT_EQ(test::read_pieces(parser(), text, seed), events) << text;
    if (HasFailure()) return;
  }
}

// Whatever a call is cut to, it is content or an incomplete call, and never another call.
TEST_P(WrittenCalls, ThatAreCutAreNotRepaired) {
  const AnswerFormat format = named_answer_format(GetParam());
  const ToolSet tools(test::offered_tools());
  for (std::uint64_t seed = 1000; seed < 1010; ++seed) {
    const WrittenAnswer written = write_answer(format, seed);
    for (std::size_t size = 0; size < written.text.size(); ++size) {
      const std::string text = written.text.substr(0, size);
      const auto parser = [&] { return AnswerParser(format, tools, {}); };
      const std::vector<AnswerEvent> events = test::read_whole(parser(), text);
      EXPECT_EQ(test::read_bytes(parser(), text), events) << text;
      const ParsedAnswer answer = test::parsed(events);
      ASSERT_LE(answer.calls.size(), written.calls.size()) << text;
      for (std::size_t i = 0; i < answer.calls.size(); ++i) {
        EXPECT_EQ(answer.calls[i].name, written.calls[i].first);
        if (i + 1 < answer.calls.size()) {
          EXPECT_TRUE(answer.calls[i].complete) << text;
        }
      }
      if (HasFailure()) return;
    }
  }
}

// A template that writes calls as a format's document says has this format, or one that writes
// calls the same way.
TEST_P(WrittenCalls, ShowTheFormatOfATemplate) {
  const AnswerFormat format = named_answer_format(GetParam());
  const CallSyntax syntax = call_syntax(format);
  const auto render = [&](const OrderedJson& variables) -> std::optional<std::string> {
    std::string text;
    for (const OrderedJson& message : variables.at("messages")) {
      text += "<turn " + message.at("role").get<std::string>() + ">\n";
      if (message.contains("tool_calls")) {
        const OrderedJson& function = message.at("tool_calls")[0].at("function");
        OrderedJson arguments = function.at("arguments");
        if (arguments.is_string()) {
          arguments = parse_ordered_json(arguments.get<std::string>(), "arguments");
        }
        std::string call = write_call(syntax, function.at("name").get<std::string>(),
                                      written_arguments(format, syntax, arguments));
        replace_all(call, "{index}", "0");
        replace_all(call, "{number}", "1");
        replace_all(call, "{id}", "probe0000");
        text += syntax.open + call + syntax.close;
      } else if (message.at("content").is_string()) {
        text += message.at("content").get<std::string>();
      }
      text += "<end>\n";
    }
    if (variables.at("add_generation_prompt").get<bool>()) text += "<turn assistant>\n";
    return text;
  };
  const AnswerFormat found = detect_answer_format({"", render});
  if (found.name == format.name) return;
  const CallSyntax other = call_syntax(found);
  // Two documents may differ in white space alone.
  std::string same = other.open + write_call(other, "f", "x");
  std::string wanted = syntax.open + write_call(syntax, "f", "x");
  for (std::string* text : {&same, &wanted}) {
    replace_all(*text, " ", "");
    replace_all(*text, "\n", "");
  }
  EXPECT_EQ(same, wanted) << found.name;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const FormatDocument& document : format_documents()) names.push_back(document.format.name);
  return names;
}

std::string parameter_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& byte : name) {
    if (byte == '-' || byte == '.') byte = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Formats, WrittenCalls, testing::ValuesIn(format_names()), parameter_name);

}  // namespace
}  // namespace bl
