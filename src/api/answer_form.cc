#include "api/answer_form.h"

#include <algorithm>
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
    OrderedJson form;
    if (forced) {
      form = all_calls();
    } else if (own) {
      form = content_form(own);
      if (calls) form = TagFormat::any_of({all_calls(), std::move(form)});
    } else {
      form = free_text();
    }
    OrderedJson whole;
    whole["type"] = "structural_tag";
    whole["format"] = behind(std::move(form), forced || own);
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

  // `form` where it may stand behind reasoning. `strictly`: nothing else may stand in between but
  // what begins a turn of the model.
  OrderedJson behind(OrderedJson form, bool strictly) const {
    const ReasoningSyntax& reasoning = args_.format.reasoning;
    std::vector<std::string> ends;
    for (const Pattern& close : reasoning.close) ends.push_back(close.opening());
    if (ends.empty()) return form;
    std::vector<OrderedJson> thought{tags_.until(ends)};
    if (strictly) {
      thought.push_back(TagFormat::regex("[ \\n\\r\\t]{0,8}"));
      if (const std::string head = turn_head(); !head.empty()) {
        thought.push_back(TagFormat::optional(tags_.literal(head)));
      }
    }
    if (args_.start.in_reasoning) {
      thought.push_back(std::move(form));
      return TagFormat::sequence(std::move(thought));
    }
    std::vector<OrderedJson> opens;
    for (const Pattern& open : reasoning.open) {
      std::string text = open.opening();
      if (text.starts_with(args_.start.prompt)) text.erase(0, args_.start.prompt.size());
      opens.push_back(tags_.literal(text));
    }
    if (opens.empty()) return form;
    thought.insert(thought.begin(), TagFormat::any_of(std::move(opens)));
    return TagFormat::sequence(
        {TagFormat::optional(TagFormat::sequence(std::move(thought))), std::move(form)});
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
      if (is_allowed(name)) calls.push_back(call_of(function, before, name));
    }
    if (calls.empty()) {
      fail_at(ErrorCode::kInvalidArgument, "tool_choice",
              "tool_choice allows none of the functions in tools");
    }
    return TagFormat::any_of(std::move(calls));
  }

  OrderedJson call_of(const OrderedJson& function, const std::string& before,
                      const std::string& name) const {
    std::string middle = syntax_.before_arguments;
    if (const std::size_t at = middle.find("{name}"); at != middle.npos) {
      middle.replace(at, 6, name);
    }
    const OrderedJson* schema = given(function, "parameters");
    if (schema == nullptr) schema = given(function, "input_schema");
    return TagFormat::sequence({tags_.literal(before + name + middle),
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

  std::string beginning() const {
    std::string text = syntax_.open + syntax_.before_name;
    // A prompt that ends in the first marker leaves the rest of it to the answer.
    if (text.starts_with(args_.start.prompt)) text.erase(0, args_.start.prompt.size());
    return text;
  }
  OrderedJson all_calls() const { return calls_from(beginning()); }

  // Any text, in which calls keep to their schemas.
  OrderedJson free_text() const {
    const std::string begin = syntax_.open + syntax_.before_name;
    std::string trigger = syntax_.trigger;
    std::size_t at = begin.find(trigger);
    const std::int32_t token = tags_.first_token(at == begin.npos ? begin : trigger);
    if (at == begin.npos || (token < 0 && trigger.size() < kShortestTrigger)) {
      trigger = begin;
      at = 0;
    }
    OrderedJson free;
    if (token >= 0) {
      trigger = args_.tokenizer.id_to_token(token);
      free = {{"type", "token_dispatch"},
              {"rules", OrderedJson::array({OrderedJson::array(
                            {token, dispatched(trigger, begin.substr(at + trigger.size()))})})}};
    } else if (trigger.size() < kShortestTrigger) {
      free = {{"type", "dispatch"}, {"rules", rules_by_name(begin)}};
    } else {
      free = {{"type", "dispatch"},
              {"rules", OrderedJson::array({OrderedJson::array(
                            {trigger, dispatched(trigger, begin.substr(at + trigger.size()))})})}};
    }
    free["loop"] = args_.request.tool_choice.parallel;
    if (token < 0) free = with_special_tokens(std::move(free));
    if (args_.start.prompt.empty() || !begin.starts_with(args_.start.prompt)) return free;
    // The answer begins where the trigger has been.
    return TagFormat::sequence(
        {dispatched(args_.start.prompt, begin.substr(args_.start.prompt.size())),
         TagFormat::optional(std::move(free))});
  }

  // A dispatch by text knows no special tokens. Those of markers may stand between its texts.
  OrderedJson with_special_tokens(OrderedJson free) const {
    std::vector<OrderedJson> tokens;
    for (const std::int32_t id : tags_.special_in(marker_texts())) {
      tokens.push_back({{"type", "token"}, {"token", id}});
    }
    if (tokens.empty()) return free;
    OrderedJson more =
        TagFormat::star(TagFormat::sequence({TagFormat::any_of(std::move(tokens)), free}));
    return TagFormat::sequence({std::move(free), std::move(more)});
  }
  std::vector<std::string> marker_texts() const {
    std::vector<std::string> texts;
    const ReasoningSyntax& reasoning = args_.format.reasoning;
    for (const auto* patterns : {&args_.format.drop, &reasoning.open, &reasoning.close}) {
      for (const Pattern& pattern : *patterns) {
        for (const Pattern::Part& part : pattern.parts()) texts.push_back(part.text);
      }
    }
    return texts;
  }

  // What may follow a trigger: calls, or the rest of another marker that begins alike.
  OrderedJson dispatched(const std::string& trigger, const std::string& before) const {
    std::vector<OrderedJson> choices{following(before)};
    for (const auto* markers : {&args_.format.drop, &args_.format.reasoning.open}) {
      for (const Pattern& marker : *markers) {
        const std::string text = marker.opening();
        if (!text.starts_with(trigger) || text.size() == trigger.size()) continue;
        choices.push_back(tags_.literal(text.substr(trigger.size())));
      }
    }
    return TagFormat::any_of(std::move(choices));
  }

  // A format whose calls stand alone comes back to the trigger for each of them.
  OrderedJson following(const std::string& before) const {
    return syntax_.shared ? calls_from(before) : call(before);
  }

  // Where calls begin with too little text, the name of the tool belongs to the trigger.
  OrderedJson rules_by_name(const std::string& begin) const {
    OrderedJson rules = OrderedJson::array();
    for (const OrderedJson& tool : args_.request.tools) {
      const OrderedJson function = function_of(tool);
      if (!function.is_object() || !function.contains("name")) continue;
      const std::string name = function["name"].get<std::string>();
      if (!is_allowed(name)) continue;
      std::vector<OrderedJson> rest{call_of(function, "", "")};
      if (syntax_.shared) {
        rest.push_back(TagFormat::star(call(syntax_.between + syntax_.before_name)));
        rest.push_back(tags_.literal(syntax_.close));
      }
      rules.push_back(OrderedJson::array({begin + name, TagFormat::sequence(std::move(rest))}));
    }
    return rules;
  }

  const AnswerFormArgs& args_;
  TagFormat tags_;
  CallSyntax syntax_;
  ArgumentForm arguments_;
};

}  // namespace

ConstraintSpec answer_constraint(const AnswerFormArgs& args) { return AnswerForm(args).make(); }

}  // namespace bl::openai
