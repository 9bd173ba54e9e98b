#include "api/answer_form.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "api/argument_form.h"
#include "api/request_error.h"
#include "api/tag_format.h"
#include "base/json.h"
#include "toolcall/call_syntax.h"

namespace bl::openai {
namespace {

// A shorter text begins a call by chance too often, unless it is a special token.
constexpr std::size_t kShortestTrigger = 6;

OrderedJson function_of(const OrderedJson& tool) {
  return tool.is_object() && tool.contains("function") ? tool["function"] : tool;
}

// An ASCII sign that begins no placeholder of a format.
bool is_plain_sign(char sign) { return static_cast<unsigned char>(sign) < 0x80 && sign != '{'; }

class AnswerForm {
 public:
  explicit AnswerForm(const AnswerFormArgs& args)
      : args_(args),
        tags_(args.tokenizer, args.end_tokens),
        syntax_(args.format.has_calls() ? call_syntax(args.format) : CallSyntax()),
        arguments_(args.format, syntax_, tags_) {}

  ConstraintSpec make() {
    const ChatRequest& request = args_.request;
    const bool forced = is_forced();
    if (forced && !args_.format.has_calls()) {
      fail_at(ErrorCode::kUnsupported, "tool_choice",
              "the model's chat template has no format for calls, so none can be forced; leave "
              "tool_choice out");
    }
    const bool calls = args_.format.has_calls() && !request.tools.is_null();
    const ConstraintSpec& own = request.constraint;
    // A request with a trigger of its own deals with reasoning itself.
    if (own.trigger_token >= 0 || !own.also.empty()) return own;
    // Tags hold no Lark.
    const bool is_lark =
        own.kind == ConstraintSpec::Kind::kGrammar && own.text.find("::=") == std::string::npos;
    if (is_lark) return own;
    const bool behind_reasoning = own && args_.format.has_reasoning();
    if (!calls && !behind_reasoning) return own;
    // What begins the answer, or follows reasoning, which a prompt that ends within a marker
    // precludes unless the marker opens it.
    const auto form_behind = [&](const std::string& prompt) {
      if (forced) return all_calls(prompt);
      if (!own) return free_text(prompt);
      OrderedJson content = content_form(own);
      if (!calls) return content;
      return TagFormat::any_of({all_calls(prompt), std::move(content)});
    };
    OrderedJson whole;
    whole["type"] = "structural_tag";
    whole["format"] =
        with_reasoning(form_behind(args_.start.prompt), form_behind(""), forced || own);
    ConstraintSpec spec = own;
    spec.kind = ConstraintSpec::Kind::kStructuralTag;
    spec.text = json_text(whole);
    return spec;
  }

 private:
  bool is_forced() const { return args_.request.tool_choice.kind == ToolChoice::Kind::kRequired; }

  // The form of content, as an element of a structural tag.
  static OrderedJson content_form(const ConstraintSpec& spec) {
    switch (spec.kind) {
      case ConstraintSpec::Kind::kRegex:
        return TagFormat::regex(spec.text);
      case ConstraintSpec::Kind::kGrammar:
        return {{"type", "grammar"}, {"grammar", spec.text}};
      case ConstraintSpec::Kind::kStructuralTag: {
        const OrderedJson tag = parse_ordered_json(spec.text, "structural tag");
        return tag.contains("format") ? tag["format"] : tag;
      }
      case ConstraintSpec::Kind::kJsonSchema:
        return TagFormat::schema(parse_ordered_json(spec.text, "JSON schema"));
      default:
        return TagFormat::schema({{"type", "object"}});
    }
  }

  // An answer of the form `first`, or of the form `next` behind reasoning. `strictly`: nothing else
  // may stand behind reasoning but what begins a turn of the model.
  OrderedJson with_reasoning(OrderedJson first, OrderedJson next, bool strictly) const {
    const ReasoningSyntax& reasoning = args_.format.reasoning;
    std::vector<std::string> ends;
    for (const Pattern& close : reasoning.close) ends.push_back(close.opening());
    if (ends.empty()) return first;
    std::vector<OrderedJson> thought{tags_.until(ends, tags_.special_in(all_texts()))};
    if (strictly) {
      thought.push_back(TagFormat::regex("[ \\n\\r\\t]{0,8}"));
      if (const std::string head = turn_head(); !head.empty()) {
        thought.push_back(TagFormat::optional(tags_.literal(head)));
      }
    }
    thought.push_back(std::move(next));
    if (args_.start.in_reasoning) return TagFormat::sequence(std::move(thought));
    const std::string& prompt = args_.start.prompt;
    std::vector<OrderedJson> opens;
    for (const Pattern& open : reasoning.open) {
      const std::string text = open.opening();
      if (text.starts_with(prompt)) opens.push_back(tags_.literal(text.substr(prompt.size())));
    }
    if (opens.empty()) return first;
    thought.insert(thought.begin(), TagFormat::any_of(std::move(opens)));
    return TagFormat::any_of({TagFormat::sequence(std::move(thought)), std::move(first)});
  }

  // What stands between two turns of the model in formats where a call is a turn.
  std::string turn_head() const {
    std::string longest;
    for (const Pattern& marker : args_.format.drop) {
      const std::string text = marker.opening();
      if (text.size() > longest.size() && syntax_.between.ends_with(text)) longest = text;
    }
    return longest;
  }

  bool is_allowed(const std::string& name) const {
    const std::vector<std::string>& names = args_.request.tool_choice.names;
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  }

  // One call without what stands before its name, beginning with `before`.
  OrderedJson call(const std::string& before) const {
    std::vector<OrderedJson> calls;
    for (const OrderedJson& tool : args_.request.tools) {
      const OrderedJson function = function_of(tool);
      if (!function.is_object() || !function.contains("name")) continue;
      const std::string name = function["name"].get<std::string>();
      if (is_allowed(name)) calls.push_back(call_of(function, before + name + behind_name(name)));
    }
    if (calls.empty()) {
      fail_at(ErrorCode::kInvalidArgument, "tool_choice",
              "tool_choice allows none of the functions in tools");
    }
    return TagFormat::any_of(std::move(calls));
  }

  // The text between a call's name and its arguments.
  std::string behind_name(const std::string& name) const {
    std::string text = syntax_.before_arguments;
    if (const std::size_t at = text.find("{name}"); at != text.npos) text.replace(at, 6, name);
    return text;
  }

  // A call of which `head` is all that stands before its arguments.
  OrderedJson call_of(const OrderedJson& function, const std::string& head) const {
    const OrderedJson* schema = given(function, "parameters");
    if (schema == nullptr) schema = given(function, "input_schema");
    return TagFormat::sequence({tags_.literal(head),
                                arguments_.arguments(schema == nullptr ? OrderedJson() : *schema),
                                tags_.literal(syntax_.after_arguments)});
  }

  // All calls of an answer: the first one begins with `before`.
  OrderedJson calls_from(const std::string& before) const {
    const bool one = !args_.request.tool_choice.parallel || tags_.ends_answer(syntax_.between);
    std::vector<OrderedJson> elements{call(before)};
    if (!one) {
      elements.push_back(TagFormat::star(call(syntax_.between + syntax_.before_name)));
    }
    elements.push_back(tags_.literal(syntax_.close));
    return TagFormat::sequence(std::move(elements));
  }

  // A prompt that ends in the first marker leaves the rest of it to the answer.
  OrderedJson all_calls(const std::string& prompt) const {
    std::string text = syntax_.open + syntax_.before_name;
    if (text.starts_with(prompt)) text.erase(0, prompt.size());
    return calls_from(text);
  }

  // A text with which calls begin, and what may follow it.
  struct Beginning {
    std::string text;
    OrderedJson rest;
  };

  // Any text, in which calls keep to their schemas from the text with which they begin. Other
  // markers may begin alike.
  OrderedJson free_text(const std::string& prompt) const {
    const std::string begin = syntax_.open + syntax_.before_name;
    std::string trigger = syntax_.trigger;
    std::size_t at = begin.find(trigger);
    const std::int32_t token = tags_.first_token(at == begin.npos ? begin : trigger);
    if (at == begin.npos || (token < 0 && trigger.size() < kShortestTrigger)) {
      trigger = begin;
      at = 0;
    }
    if (token >= 0) trigger = args_.tokenizer.id_to_token(token);
    std::vector<Beginning> calls;
    std::vector<OrderedJson> others;
    if (token < 0 && trigger.size() < kShortestTrigger) {
      calls = calls_by_name(begin);
    } else {
      calls.push_back({trigger, following(begin.substr(at + trigger.size()))});
      others = other_markers(trigger);
    }
    OrderedJson free = args_.request.tool_choice.parallel ? text_with_calls(token, calls, others)
                                                          : text_before_call(token, calls, others);
    if (prompt.empty() || !begin.starts_with(prompt)) return free;
    return behind_prompt(following(begin.substr(prompt.size())), std::move(free));
  }

  OrderedJson text_with_calls(std::int32_t token, const std::vector<Beginning>& calls,
                              std::vector<OrderedJson> others) const {
    OrderedJson rules = OrderedJson::array();
    for (const Beginning& one : calls) {
      std::vector<OrderedJson> choices{one.rest};
      std::move(others.begin(), others.end(), std::back_inserter(choices));
      others.clear();
      rules.push_back(rule(token, one.text, TagFormat::any_of(std::move(choices))));
    }
    return with_special_tokens(token, std::move(rules), calls);
  }

  // Text in which no call begins, and then at most one.
  OrderedJson text_before_call(std::int32_t token, const std::vector<Beginning>& calls,
                               std::vector<OrderedJson> others) const {
    OrderedJson rules = OrderedJson::array();
    if (!others.empty()) {
      rules.push_back(rule(token, calls.front().text, TagFormat::any_of(std::move(others))));
    }
    std::vector<OrderedJson> choices;
    for (const Beginning& one : calls) {
      choices.push_back(TagFormat::sequence({tags_.literal(one.text), one.rest}));
    }
    return TagFormat::sequence({with_special_tokens(token, std::move(rules), calls),
                                TagFormat::optional(TagFormat::any_of(std::move(choices)))});
  }

  static OrderedJson rule(std::int32_t token, const std::string& text, OrderedJson rest) {
    OrderedJson pair = OrderedJson::array();
    if (token >= 0) {
      pair.push_back(token);
    } else {
      pair.push_back(text);
    }
    pair.push_back(std::move(rest));
    return pair;
  }

  // An answer that begins behind the prompt's end, which is the beginning of a marker.
  OrderedJson behind_prompt(OrderedJson call, OrderedJson free) const {
    std::vector<OrderedJson> others = other_markers(args_.start.prompt);
    if (args_.request.tool_choice.parallel) {
      others.insert(others.begin(), std::move(call));
      return TagFormat::sequence({TagFormat::any_of(std::move(others)), std::move(free)});
    }
    if (others.empty()) return call;
    return TagFormat::any_of(
        {std::move(call),
         TagFormat::sequence({TagFormat::any_of(std::move(others)), std::move(free)})});
  }

  // Free text where `rules` apply, and where calls do not begin otherwise. Only special tokens that
  // a tag names may come, so those of the format's markers are named.
  OrderedJson with_special_tokens(std::int32_t token, OrderedJson rules,
                                  const std::vector<Beginning>& calls) const {
    std::vector<std::int32_t> named = tags_.special_in(marker_texts());
    std::erase(named, token);
    if (token >= 0) {
      std::vector<std::int32_t> excluded;
      if (rules.empty()) excluded.push_back(token);
      return TagFormat::tokens(std::move(rules), named, excluded);
    }
    OrderedJson text;
    if (rules.empty()) {
      text = {{"type", "any_text"}, {"excludes", OrderedJson::array()}};
      for (const Beginning& one : calls) text["excludes"].push_back(one.text);
    } else {
      text = {{"type", "dispatch"}, {"rules", std::move(rules)}};
    }
    if (named.empty()) return text;
    std::vector<OrderedJson> choices;
    for (const std::int32_t id : named) choices.push_back({{"type", "token"}, {"token", id}});
    OrderedJson more =
        TagFormat::star(TagFormat::sequence({TagFormat::any_of(std::move(choices)), text}));
    return TagFormat::sequence({std::move(text), std::move(more)});
  }
  std::vector<std::string> marker_texts() const {
    std::vector<std::string> texts;
    const ReasoningSyntax& reasoning = args_.format.reasoning;
    for (const auto* patterns :
         {&args_.format.drop, &args_.format.close, &reasoning.open, &reasoning.close}) {
      for (const Pattern& pattern : *patterns) {
        for (const Pattern::Part& part : pattern.parts()) texts.push_back(part.text);
      }
    }
    return texts;
  }

  // These, and the texts of calls.
  std::vector<std::string> all_texts() const {
    std::vector<std::string> texts = marker_texts();
    for (const std::string& text :
         {syntax_.open, syntax_.between, syntax_.close, syntax_.before_name,
          syntax_.before_arguments, syntax_.after_arguments, syntax_.before_key,
          syntax_.before_value, syntax_.after_value}) {
      texts.push_back(text);
    }
    return texts;
  }

  // The rests of the markers that begin with `text` and are no calls.
  std::vector<OrderedJson> other_markers(const std::string& text) const {
    std::vector<OrderedJson> rests;
    for (const auto* markers : {&args_.format.drop, &args_.format.reasoning.open}) {
      for (const Pattern& marker : *markers) {
        const std::string opening = marker.opening();
        if (!opening.starts_with(text) || opening.size() == text.size()) continue;
        rests.push_back(tags_.literal(opening.substr(text.size())));
      }
    }
    return rests;
  }

  // A format whose calls stand alone comes back to the trigger for each of them.
  OrderedJson following(const std::string& before) const {
    return syntax_.shared ? calls_from(before) : call(before);
  }

  // Where calls begin with too little text, the name of the tool belongs to their beginning.
  std::vector<Beginning> calls_by_name(const std::string& begin) const {
    std::vector<Beginning> calls;
    for (const OrderedJson& tool : args_.request.tools) {
      const OrderedJson function = function_of(tool);
      if (!function.is_object() || !function.contains("name")) continue;
      const std::string name = function["name"].get<std::string>();
      if (!is_allowed(name)) continue;
      std::string text = begin + name;
      std::string head = behind_name(name);
      // With the sign behind it, a name does not begin a call of a longer name.
      if (!head.empty() && is_plain_sign(head[0]) && tags_.first_token(head) < 0) {
        text += head[0];
        head.erase(0, 1);
      }
      std::vector<OrderedJson> rest{call_of(function, head)};
      if (syntax_.shared) {
        if (args_.request.tool_choice.parallel) {
          rest.push_back(TagFormat::star(call(syntax_.between + syntax_.before_name)));
        }
        rest.push_back(tags_.literal(syntax_.close));
      }
      calls.push_back({std::move(text), TagFormat::sequence(std::move(rest))});
    }
    return calls;
  }

  const AnswerFormArgs& args_;
  TagFormat tags_;
  CallSyntax syntax_;
  ArgumentForm arguments_;
};

}  // namespace

ConstraintSpec answer_constraint(const AnswerFormArgs& args) { return AnswerForm(args).make(); }

}  // namespace bl::openai
