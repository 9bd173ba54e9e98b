// Forced and free calls in every format: what the constraint lets a model write is read back as
// calls that keep to the schemas of their tools.

#include "api/answer_form.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>
#include <set>

#include "api/request_error.h"
#include "base/json.h"
#include "byte_tokenizer.h"
#include "sample/constraint_compiler.h"
#include "toolcall/call_syntax.h"

namespace bl::openai {
namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "paint", "description": "d", "parameters": {
    "type": "object", "properties": {
      "colour": {"type": "string", "enum": ["red", "light blue"]}, "coats": {"type": "integer"},
      "gate": {"type": "boolean"}, "note": {"type": "string"},
      "boards": {"type": "array", "items": {"type": "integer"}}},
    "required": ["colour", "coats"]}}},
  {"type": "function", "function": {"name": "stop_all"}}])";

ChatRequest request_with(const std::string& members) {
  return ChatRequest::read(
      parse_ordered_json(R"({"messages":[{"role":"user","content":"a"}])" + members + "}", "body"),
      {}, SamplingParams::plain());
}

ChatRequest with_tools(const std::string& members) {
  return request_with(std::string(",\"tools\":") + kTools + members);
}

std::vector<std::string> marker_texts(const AnswerFormat& format) {
  const CallSyntax syntax = call_syntax(format);
  std::vector<std::string> texts{syntax.open,
                                 syntax.before_name,
                                 syntax.before_arguments,
                                 syntax.between,
                                 syntax.before_key,
                                 syntax.before_value,
                                 syntax.after_value,
                                 syntax.close,
                                 syntax.after_arguments,
                                 format.string_delimiter};
  for (const auto* patterns : {&format.reasoning.open, &format.reasoning.close, &format.drop}) {
    for (const Pattern& pattern : *patterns) texts.push_back(pattern.opening());
  }
  return texts;
}

// What looks like a control token in the markers.
std::vector<std::string> control_tokens(const AnswerFormat& format) {
  std::set<std::string> tokens;
  const std::regex token(R"(<[|｜][^<>{}"= ]*>|<[^<>{}"= ]*[|｜]>|\[[A-Z_/]+\])");
  for (const std::string& text : marker_texts(format)) {
    for (auto at = std::sregex_iterator(text.begin(), text.end(), token);
         at != std::sregex_iterator(); ++at) {
      tokens.insert(at->str());
    }
  }
  return {tokens.begin(), tokens.end()};
}

// The texts that a model of this format tends to write: its markers, up to their placeholders.
std::vector<std::string> goals_of(const AnswerFormat& format) {
  const std::regex placeholder(R"(\{[a-z_]+\})");
  std::vector<std::string> goals{"\""};
  for (const std::string& text : marker_texts(format)) {
    for (const char* key : {"colour", "coats", "gate", "note", "boards"}) {
      std::string goal = text;
      if (const std::size_t at = goal.find("{key}"); at != goal.npos) goal.replace(at, 5, key);
      std::smatch match;
      if (std::regex_search(goal, match, placeholder)) goal = match.prefix();
      if (!goal.empty()) goals.push_back(goal);
      if (text.find("{key}") == text.npos) break;
    }
  }
  return goals;
}

// A model that writes at random what a constraint allows, and tends to complete markers, the more
// so in a long answer, so that it ends.
class RandomWriter {
 public:
  RandomWriter(const Tokenizer& tokenizer, std::vector<std::string> goals, unsigned seed)
      : tokenizer_(tokenizer), goals_(std::move(goals)), random_(seed) {}

  // The text that it writes; nothing where it does not come to an end.
  std::optional<std::string> write(Constraint& constraint, std::int32_t end) {
    text_.clear();
    for (int i = 0; i < 6000; ++i) {
      const std::span<const std::uint32_t> mask = constraint.mask();
      const auto allows = [&](std::int32_t id) {
        const auto at = static_cast<std::size_t>(id);
        return at / 32 < mask.size() && (mask[at / 32] >> (at % 32) & 1) != 0;
      };
      if (allows(end)) {
        if (random_() % 2 == 0) return text_;
      }
      std::vector<std::int32_t> all;
      for (std::int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
        if (id != end && allows(id)) all.push_back(id);
      }
      if (all.empty()) return allows(end) ? std::optional(text_) : std::nullopt;
      std::int32_t chosen = all[random_() % all.size()];
      const bool keeps_on = random_() % (text_.size() > kLongText ? 32 : 8) != 0;
      const std::string wanted = wanted_text();
      if (const std::int32_t first = first_token(wanted, allows); first >= 0 && keeps_on) {
        chosen = first;
      }
      constraint.accept(chosen);
      text_ += tokenizer_.is_special(chosen) ? std::string(tokenizer_.id_to_token(chosen))
                                             : std::string(1, static_cast<char>(chosen));
      if (constraint.finished()) return text_;
    }
    return std::nullopt;
  }
  const std::string& text() const { return text_; }

 private:
  static constexpr std::size_t kLongText = 300;

  // What goes on with a marker, or now and then the whole of one; empty: anything. Markers of which
  // the text ends in equally long beginnings are equally likely.
  std::string wanted_text() {
    std::size_t longest = 0;
    std::vector<std::string> rests;
    for (const std::string& goal : goals_) {
      for (std::size_t size = std::min(goal.size() - 1, text_.size()); size > 0; --size) {
        if (!text_.ends_with(goal.substr(0, size))) continue;
        if (size > longest) rests.clear();
        longest = std::max(longest, size);
        if (size == longest) rests.push_back(goal.substr(size));
        break;
      }
    }
    if (longest > 0) return rests[random_() % rests.size()];
    return random_() % 4 != 0 ? std::string() : goals_[random_() % goals_.size()];
  }

  // The token with which a text begins, a special one if it may come; -1: none may.
  template <class Allows>
  std::int32_t first_token(const std::string& text, const Allows& allows) const {
    if (text.empty()) return -1;
    for (std::int32_t id = 256; id < tokenizer_.vocab_size(); ++id) {
      if (text.starts_with(tokenizer_.id_to_token(id)) && allows(id)) return id;
    }
    const std::int32_t byte = static_cast<unsigned char>(text[0]);
    return allows(byte) ? byte : -1;
  }

  const Tokenizer& tokenizer_;
  std::vector<std::string> goals_;
  std::mt19937 random_;
  std::string text_;
};

// An integer of any size; beyond 64 bits the JSON library reads a number with a fraction.
bool is_integer(const Json& value) {
  if (!value.is_number_float()) return value.is_number_integer();
  const double number = value.get<double>();
  return std::trunc(number) == number;
}

bool keeps_to_the_schema(const ParsedCall& call) {
  const Json arguments = parse_json(call.arguments, "arguments");
  if (call.name == "stop_all") return arguments == Json::object();
  if (call.name != "paint" || !arguments.contains("colour")) return false;
  if (arguments["colour"] != "red" && arguments["colour"] != "light blue") return false;
  if (!arguments.contains("coats") || !is_integer(arguments["coats"])) return false;
  if (arguments.contains("gate") && !arguments["gate"].is_boolean()) return false;
  if (arguments.contains("note") && !arguments["note"].is_string()) return false;
  return !arguments.contains("boards") ||
         (arguments["boards"].is_array() &&
          std::all_of(arguments["boards"].begin(), arguments["boards"].end(), is_integer));
}

struct Written {
  std::string text;
  ParsedAnswer answer;
};

// One format with a vocabulary of its own.
class Format {
 public:
  Format(AnswerFormat format, bool special)
      : format_(std::move(format)), tools_(parse_json(kTools, "tools")) {
    std::vector<std::string> tokens{"<end>"};
    if (special) {
      for (const std::string& token : control_tokens(format_)) tokens.push_back(token);
    }
    tokenizer_ = test::make_byte_tokenizer(tokens);
    compiler_ = std::make_unique<ConstraintCompiler>(*tokenizer_);
  }

  static constexpr std::int32_t kEnd = 256;

  ConstraintSpec spec(const ChatRequest& request, const AnswerStart& start = {}) const {
    return answer_constraint({.format = format_,
                              .start = start,
                              .request = request,
                              .tokenizer = *tokenizer_,
                              .end_tokens = std::span(&kEnd, 1)});
  }
  std::optional<Written> write(const ConstraintSpec& spec, const AnswerStart& start,
                               unsigned seed) {
    Constraint constraint(compiler_->compile(spec), {kEnd});
    RandomWriter writer(*tokenizer_, goals_of(format_), seed);
    const std::optional<std::string> text = writer.write(constraint, kEnd);
    if (!text) {
      ADD_FAILURE() << fmt::format("no end after {} bytes: {}", writer.text().size(),
                                   writer.text().substr(writer.text().size() / 2));
      return std::nullopt;
    }
    AnswerOptions options;
    options.start = start;
    AnswerParser parser(format_, tools_, options);
    Written written{*text, {}};
    written.answer.add(parser.feed(*text));
    written.answer.add(parser.finish());
    return written;
  }
  // Whether the constraint lets a model write this text, and end behind it.
  bool allows(const ConstraintSpec& spec, const std::string& text) {
    Constraint constraint(compiler_->compile(spec), {kEnd});
    for (const std::int32_t id : tokenizer_->encode(text)) {
      if (!constraint.allows(id)) return false;
      constraint.accept(id);
    }
    return constraint.complete();
  }
  const AnswerFormat& format() const { return format_; }

 private:
  AnswerFormat format_;
  ToolSet tools_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ConstraintCompiler> compiler_;
};

void expect_calls(const Written& written, std::size_t least, std::size_t most) {
  EXPECT_GE(written.answer.calls.size(), least) << written.text;
  EXPECT_LE(written.answer.calls.size(), most) << written.text;
  for (const ParsedCall& call : written.answer.calls) {
    EXPECT_TRUE(call.complete) << written.text;
    if (!call.complete) continue;
    EXPECT_TRUE(keeps_to_the_schema(call)) << written.text << '\n' << call.arguments;
  }
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

TEST(AnswerForm, ForcedCallsAreCallsInEveryFormat) {
  const ChatRequest any = with_tools(R"(,"tool_choice":"required")");
  const ChatRequest named =
      with_tools(R"(,"tool_choice":{"type":"function","function":{"name":"paint"}})");
  for (const FormatDocument& document : format_documents()) {
    for (const bool special : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", document.format.name, special));
      Format format(named_answer_format(document.format.name), special);
      AnswerStart start;
      start.prompt = format.format().prompt;
      for (unsigned seed = 0; seed < 4; ++seed) {
        const auto several = format.write(format.spec(any, start), start, seed);
        if (several) {
          expect_calls(*several, 1, 1000);
          EXPECT_TRUE(is_blank(several->answer.content)) << several->text;
        }
        const auto one = format.write(format.spec(named, start), start, seed);
        if (!one) continue;
        expect_calls(*one, 1, 1);
        if (one->answer.calls.empty()) continue;
        EXPECT_EQ(one->answer.calls[0].name, "paint");
      }
    }
  }
}

TEST(AnswerForm, CallsStandBehindReasoning) {
  const ChatRequest any = with_tools(R"(,"tool_choice":"required","parallel_tool_calls":false)");
  Format format(named_answer_format("hermes"), false);
  ASSERT_TRUE(format.format().has_reasoning());
  AnswerStart inside;
  inside.in_reasoning = true;
  const std::string call = "<tool_call>\n{\"name\": \"stop_all\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(format.allows(format.spec(any, inside), "why <tool_call> not</think>\n\n" + call));
  EXPECT_FALSE(format.allows(format.spec(any, inside), call));
  EXPECT_TRUE(format.allows(format.spec(any), "<think>\nwhy</think>\n\n" + call));
  EXPECT_TRUE(format.allows(format.spec(any), call));
  EXPECT_FALSE(format.allows(format.spec(any), "text " + call));
  EXPECT_FALSE(format.allows(format.spec(any), call + "\n" + call));
}

TEST(AnswerForm, FreeTextConstrainsCallsFromTheirBeginning) {
  const ChatRequest free = with_tools("");
  for (const bool special : {false, true}) {
    Format format(named_answer_format("hermes"), special);
    const ConstraintSpec spec = format.spec(free);
    const auto call = [](const std::string& arguments) {
      return "<tool_call>\n{\"name\": \"paint\", \"arguments\": " + arguments + "}\n</tool_call>";
    };
    EXPECT_TRUE(format.allows(spec, "any text, <tool> or {\"name\"}"));
    EXPECT_TRUE(format.allows(spec, "a " + call(R"({"colour": "red", "coats": 1})") + " b"));
    EXPECT_FALSE(format.allows(spec, "a " + call(R"({"colour": "green", "coats": 1})")));
    EXPECT_FALSE(format.allows(spec, call(R"({"coats": 1})")));
    EXPECT_FALSE(format.allows(spec, call(R"({"colour": "red", "coats": "1"})")));
    EXPECT_FALSE(format.allows(spec, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}"));
    EXPECT_TRUE(format.allows(spec, "<think>\n<tool_call>x</think>done"));
  }
}

// With this format a call and other text begin with the same token.
TEST(AnswerForm, OtherMarkersThatBeginAlikeAreFree) {
  const ChatRequest free = with_tools("");
  Format format(named_answer_format("harmony"), true);
  const ConstraintSpec spec = format.spec(free);
  EXPECT_TRUE(format.allows(
      spec,
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>x"));
  const std::string call =
      "<|channel|>commentary to=functions.stop_all <|constrain|>json<|message|>";
  EXPECT_TRUE(format.allows(spec, call + "{}"));
  EXPECT_FALSE(format.allows(spec, call + R"({"a": 1})"));
  const std::string next = "<|call|><|start|>assistant";
  EXPECT_TRUE(format.allows(spec, call + "{}" + next + call + "{}"));
}

// Other markers that begin as calls do are no calls, of which there may be only one.
TEST(AnswerForm, OnlyCallsCountWhereOneIsAllowed) {
  const ChatRequest single = with_tools(R"(,"parallel_tool_calls":false)");
  const std::string analysis = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  const std::string call =
      "<|channel|>commentary to=functions.stop_all <|constrain|>json<|message|>{}";
  for (const bool special : {false, true}) {
    Format format(named_answer_format("harmony"), special);
    const ConstraintSpec spec = format.spec(single);
    EXPECT_TRUE(format.allows(spec, "<|channel|>final<|message|>x"));
    EXPECT_TRUE(format.allows(spec, "<|channel|>commentary<|message|>first this"));
    EXPECT_TRUE(format.allows(spec, analysis + analysis + call));
    EXPECT_FALSE(format.allows(spec, call + "<|call|><|start|>assistant" + call));
  }
  for (const bool special : {false, true}) {
    Format format(named_answer_format("mistral"), special);
    const ConstraintSpec spec = format.spec(single);
    EXPECT_TRUE(format.allows(spec, "a [TOOL] b"));
    EXPECT_TRUE(format.allows(spec, "a [TOOL_CALLS]stop_all[ARGS]{}"));
    EXPECT_FALSE(format.allows(spec, "[TOOL_CALLS]stop_all[ARGS]{}[TOOL_CALLS]stop_all[ARGS]{}"));
  }
}

// In the Python form a call begins with nothing but a bracket and its name.
TEST(AnswerForm, NamesMayBeginOtherNames) {
  const auto request = [](const std::string& more) {
    return request_with(R"(,"tools":[{"type":"function","function":{"name":"paint"}},)"
                        R"({"type":"function","function":{"name":"paint_all"}}])" +
                        more);
  };
  Format format(named_answer_format("pythonic"), false);
  for (const char* more : {"", R"(,"parallel_tool_calls":false)"}) {
    const ConstraintSpec spec = format.spec(request(more));
    EXPECT_TRUE(format.allows(spec, "[paint()]"));
    EXPECT_TRUE(format.allows(spec, "so [paint_all()]"));
    EXPECT_TRUE(format.allows(spec, "a [painting] of [2]"));
    EXPECT_FALSE(format.allows(spec, "[paint(a=1)]"));
    EXPECT_EQ(format.allows(spec, "[paint(), paint_all()]"), *more == 0);
  }
}

TEST(AnswerForm, FormsOfContentStandBesideCallsAndBehindReasoning) {
  Format format(named_answer_format("hermes"), false);
  const std::string form =
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)"
      R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}})";
  const ConstraintSpec both = format.spec(with_tools(form));
  const std::string call = "<tool_call>\n{\"name\": \"stop_all\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(format.allows(both, R"({"a": 1})"));
  EXPECT_TRUE(format.allows(both, call));
  EXPECT_FALSE(format.allows(both, "a"));
  AnswerStart inside;
  inside.in_reasoning = true;
  const ConstraintSpec thinking = format.spec(request_with(form), inside);
  EXPECT_TRUE(format.allows(thinking, "so</think>\n{\"a\": 1}"));
  EXPECT_FALSE(format.allows(thinking, "{\"a\": 1}"));
  EXPECT_TRUE(format.allows(format.spec(request_with(form)), R"({"a": 1})"));
}

TEST(AnswerForm, WithoutAFormatNothingCanBeForced) {
  Format format({}, false);
  EXPECT_EQ(format.spec(with_tools("")), ConstraintSpec());
  try {
    format.spec(with_tools(R"(,"tool_choice":"required")"));
    ADD_FAILURE() << "forced";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param(), "tool_choice");
  }
}

TEST(AnswerForm, BrokenSchemasAreRefused) {
  Format format(named_answer_format("hermes"), false);
  for (const char* schema :
       {R"({"type":"object","properties":{"a":{"type":"string","pattern":"^+[a-z]$"}}})",
        R"({"type":"object","properties":{"a":{"$ref":"https://example.com/a.json"}}})",
        R"({"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}})"}) {
    const ChatRequest request = request_with(fmt::format(
        R"(,"tools":[{{"type":"function","function":{{"name":"f","parameters":{}}}}}])", schema));
    EXPECT_THROW(format.allows(format.spec(request), "a"), Error) << schema;
  }
}

}  // namespace
}  // namespace bl::openai
