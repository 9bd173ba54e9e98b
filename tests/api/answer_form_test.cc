// Forced and free calls in every format: what the constraint lets a model write is read back as
// calls that keep to the schemas of their tools.

#include "api/answer_form.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// A model that writes at random what a constraint allows, and tends to complete markers.
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
      if (const int wanted = wanted_byte(); wanted >= 0 && allows(wanted) && random_() % 8 != 0) {
        chosen = wanted;
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
  // The byte that goes on with a marker, or begins one now and then; -1: any.
  int wanted_byte() {
    std::size_t longest = 0;
    int byte = -1;
    for (const std::string& goal : goals_) {
      for (std::size_t size = std::min(goal.size() - 1, text_.size()); size > longest; --size) {
        if (!text_.ends_with(goal.substr(0, size))) continue;
        longest = size;
        byte = static_cast<unsigned char>(goal[size]);
        break;
      }
    }
    if (longest > 0) return byte;
    if (random_() % 4 != 0) return -1;
    return static_cast<unsigned char>(goals_[random_() % goals_.size()][0]);
  }

  const Tokenizer& tokenizer_;
  std::vector<std::string> goals_;
  std::mt19937 random_;
  std::string text_;
};

bool keeps_to_the_schema(const ParsedCall& call) {
  const Json arguments = parse_json(call.arguments, "arguments");
  if (call.name == "stop_all") return arguments == Json::object();
  if (call.name != "paint" || !arguments.contains("colour")) return false;
  if (arguments["colour"] != "red" && arguments["colour"] != "light blue") return false;
  if (!arguments.contains("coats") || !arguments["coats"].is_number_integer()) return false;
  if (arguments.contains("gate") && !arguments["gate"].is_boolean()) return false;
  if (arguments.contains("note") && !arguments["note"].is_string()) return false;
  return !arguments.contains("boards") ||
         (arguments["boards"].is_array() &&
          std::all_of(arguments["boards"].begin(), arguments["boards"].end(),
                      [](const Json& one) { return one.is_number_integer(); }));
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
    std::vector<std::string> goals;
    for (const std::string& text : marker_texts(format_)) {
      const std::size_t end = text.find('{', 1);
      if (!text.substr(0, end).empty()) goals.push_back(text.substr(0, end));
    }
    goals.push_back("\"");
    RandomWriter writer(*tokenizer_, std::move(goals), seed);
    const std::optional<std::string> text = writer.write(constraint, kEnd);
    if (!text) {
      ADD_FAILURE() << "no end: " << writer.text().substr(0, 400);
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
