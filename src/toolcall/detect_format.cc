#include "toolcall/detect_format.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "toolcall/answer_parser.h"
#include "toolcall/call_syntax.h"

namespace bl {
namespace {

constexpr std::string_view kProbeTool = "probe_tool";
constexpr std::string_view kProbeKey = "probe_key";
constexpr std::string_view kProbeValue = "probe value";

OrderedJson probe_tools() {
  return parse_ordered_json(
      R"([{"type": "function", "function": {"name": "probe_tool", "description": "probe", )"
      R"("parameters": {"type": "object", "properties": {"probe_key": {"type": "string", )"
      R"("description": "probe"}}, "required": ["probe_key"]}}}])",
      "probe");
}

OrderedJson user_message() {
  OrderedJson message;
  message["role"] = "user";
  message["content"] = "probe question";
  return message;
}

OrderedJson call_message(bool arguments_as_text) {
  OrderedJson arguments;
  arguments[std::string(kProbeKey)] = kProbeValue;
  OrderedJson function;
  function["name"] = kProbeTool;
  function["arguments"] =
      arguments_as_text ? OrderedJson(R"({"probe_key": "probe value"})") : arguments;
  OrderedJson call;
  call["id"] = "probe0000";  // some templates want nine letters and digits
  call["type"] = "function";
  call["function"] = function;
  OrderedJson message;
  message["role"] = "assistant";
  message["tool_calls"] = OrderedJson::array({call});
  return message;
}

OrderedJson conversation(std::vector<OrderedJson> messages, bool generate) {
  OrderedJson variables;
  variables["messages"] = std::move(messages);
  variables["tools"] = probe_tools();
  variables["add_generation_prompt"] = generate;
  return variables;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t size = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin()).first -
      a.begin());
}

// Steps back from the middle of a marker to its begin.
std::size_t marker_begin(std::string_view text, std::size_t at) {
  if (at == text.size()) return at;
  const std::size_t end = text.substr(0, at).find_last_of("\n>]");
  return end == text.npos ? 0 : end + 1;
}

// The message with the call in one rendering.
struct RenderedCall {
  std::string text;
  std::string tail;  // the end of the prompt, if the text stands right behind it
};

// The renderings of a template that detection looks at.
struct Renderings {
  std::vector<std::string> all;
  std::vector<RenderedCall> calls;
};

void render_calls(const TemplateProbe& probe, Renderings& renderings) {
  const std::string before =
      probe.render(conversation({user_message()}, false)).value_or(std::string());
  const std::string prompt =
      probe.render(conversation({user_message()}, true)).value_or(std::string());
  const std::string_view tail = generation_tail(prompt, before);
  renderings.all = {before, prompt};
  for (const bool as_text : {false, true}) {
    for (const char* content : {R"("")", "null", "\"probe answer\""}) {
      OrderedJson message = call_message(as_text);
      message["content"] = parse_ordered_json(content, "probe");
      const auto text = probe.render(conversation({user_message(), message}, false));
      if (!text) continue;
      renderings.all.push_back(*text);
      std::string_view call =
          std::string_view(*text).substr(marker_begin(*text, common_prefix(*text, before)));
      const bool behind = call.starts_with(tail);
      call.remove_prefix(behind ? tail.size() : marker_begin(call, common_prefix(call, tail)));
      if (call.find(kProbeTool) == call.npos) continue;
      renderings.calls.push_back({std::string(call), std::string(behind ? tail : "")});
    }
  }
}

// Marks of reasoning show in other renderings too: where thinking is switched on or off.
void render_reasoning(const TemplateProbe& probe, Renderings& renderings) {
  for (const bool thinking : {false, true}) {
    OrderedJson variables = conversation({user_message()}, true);
    for (const char* name : {"enable_thinking", "thinking"}) variables[name] = thinking;
    if (auto text = probe.render(variables)) renderings.all.push_back(std::move(*text));
  }
}

bool shown(std::string_view sign, const TemplateProbe& probe, const Renderings& renderings) {
  if (probe.source.find(sign) != probe.source.npos) return true;
  return std::any_of(renderings.all.begin(), renderings.all.end(),
                     [&](const std::string& text) { return text.find(sign) != text.npos; });
}

// Templates differ in the white space that they put into JSON and between tags.
std::string without_space(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(),
                            [](char byte) { return byte == ' ' || byte == '\n'; }),
             text.end());
  return text;
}

// The call as the format's document writes it.
std::string canonical_call(const CallSyntax& syntax) {
  std::string text = R"({"probe_key": "probe value"})";
  if (syntax.form == ArgumentsForm::kPython) text = "probe_key='probe value'";
  if (syntax.form == ArgumentsForm::kBraces) {
    text = "{probe_key:" + syntax.string_delimiter + "probe value" + syntax.string_delimiter + '}';
  }
  if (syntax.form == ArgumentsForm::kParameters) {
    text = write_parameter(syntax, kProbeKey, kProbeValue);
  }
  std::string call = write_call(syntax, kProbeTool, text);
  for (const auto& [mark, value] :
       {std::pair("{index}", "0"), std::pair("{number}", "1"), std::pair("{id}", "probe0000"),
        std::pair("{is_string}", "true"), std::pair("{json_type}", "string")}) {
    const std::size_t at = call.find(mark);
    if (at != call.npos) call.replace(at, std::string_view(mark).size(), value);
  }
  return call;
}

// How well a format reads the rendered call; higher is better, negative means not at all.
int reading_score(const AnswerFormat& format, const RenderedCall& call, const ToolSet& tools) {
  AnswerOptions options;
  if (call.tail.ends_with(format.prompt)) options.start.prompt = format.prompt;
  AnswerParser parser(format, tools, options);
  ParsedAnswer answer;
  answer.add(parser.feed(call.text));
  answer.add(parser.finish());
  if (answer.calls.size() != 1 || !answer.calls[0].complete || answer.calls[0].name != kProbeTool) {
    return -1;
  }
  const Json arguments = parse_json(answer.calls[0].arguments, "probe");
  if (arguments != Json{{kProbeKey, kProbeValue}}) return -1;
  const int left = static_cast<int>(std::min<std::size_t>(answer.content.size(), 400));
  const CallSyntax syntax = call_syntax(format);
  const std::string text = without_space(call.text);
  const std::string written = without_space(canonical_call(syntax));
  if (text.find(without_space(syntax.open) + written) != text.npos) return 3000 - left;
  return (text.find(written) != text.npos ? 2000 : 1000) - left;
}

// The tags of some formats carry a suffix that the model's makers choose.
AnswerFormat with_suffix(const FormatDocument& document, const Renderings& renderings) {
  if (document.suffix_after.empty()) return document.format;
  for (const RenderedCall& call : renderings.calls) {
    const std::string_view text = call.text;
    std::size_t at = text.find(document.suffix_after);
    if (at == text.npos) continue;
    at += document.suffix_after.size();
    const std::size_t end = text.find('>', at);
    if (end == text.npos || end - at > 64) continue;
    return read_format_document(document.text, document.format.name, text.substr(at, end - at))
        .format;
  }
  return document.format;
}

AnswerFormat find_calls(const TemplateProbe& probe, const Renderings& renderings) {
  const ToolSet tools(parse_json(json_text(probe_tools()), "probe"));
  AnswerFormat best;
  best.name = "none";
  int best_score = -1;
  for (const FormatDocument& document : format_documents()) {
    const AnswerFormat format = with_suffix(document, renderings);
    for (const RenderedCall& call : renderings.calls) {
      const int score = reading_score(format, call, tools);
      if (score <= best_score) continue;
      best_score = score;
      best = format;
    }
  }
  if (best_score >= 0) return best;
  std::size_t longest = 0;
  for (const FormatDocument& document : format_documents()) {
    std::size_t size = 0;
    for (const std::string& sign : document.signs) {
      if (!shown(sign, probe, renderings)) {
        size = 0;
        break;
      }
      size += sign.size();
    }
    if (size <= longest) continue;
    longest = size;
    best = document.format;
  }
  return best;
}

}  // namespace

std::string_view generation_tail(std::string_view prompt, std::string_view without) {
  const std::size_t common = common_prefix(prompt, without);
  return prompt.substr(common == without.size() ? common : marker_begin(prompt, common));
}

AnswerFormat detect_answer_format(const TemplateProbe& probe) {
  Renderings renderings;
  render_calls(probe, renderings);
  render_reasoning(probe, renderings);
  AnswerFormat format = find_calls(probe, renderings);
  for (const ReasoningDocument& document : reasoning_documents()) {
    const bool other = !document.syntax.close.empty() && format.has_reasoning();
    if (other || !shown(document.sign, probe, renderings)) continue;
    if (!format.has_reasoning()) format.reasoning = document.syntax;
    format.drop.insert(format.drop.end(), document.drop.begin(), document.drop.end());
  }
  return format;
}

}  // namespace bl
