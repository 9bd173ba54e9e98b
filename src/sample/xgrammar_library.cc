#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/schema_grammar.h"
#include "sample/grammar_dialect.h"
#include "sample/grammar_hooks.h"
#include "sample/grammar_library.h"
#include "sample/json_schema_check.h"
#include "sample/regex_dialect.h"
#include "sample/regex_grammar.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;

// Collects the library's warnings while this thread compiles a text. A warning says that the
// library does not enforce part of the text; since an answer could then violate it, the first one
// becomes an error.
class Remark {
 public:
  // `anchors_checked`: the positions of anchors have already been checked (regex_fault()).
  explicit Remark(bool anchors_checked) : anchors_checked_(anchors_checked) { current_ = this; }
  Remark(const Remark&) = delete;
  Remark& operator=(const Remark&) = delete;
  ~Remark() { current_ = nullptr; }

  static void add(const std::string& message) {
    if (current_ == nullptr || !current_->message_.empty()) return;
    const auto says = [&](const char* text) { return message.find(text) != message.npos; };
    // Accepted: a rule that cannot be lazy still matches what it should.
    if (says("lazy rule")) return;
    const bool of_anchor = says("Anchor '") || says("'^' should be") || says("'$' should be");
    if (of_anchor && current_->anchors_checked_) return;
    // A backslash before punctuation makes no difference.
    constexpr std::string_view kEscape = "Escape sequence '\\";
    if (const auto at = message.find(kEscape); at != message.npos) {
      if (std::isalnum(static_cast<unsigned char>(message[at + kEscape.size()])) == 0) return;
    }
    current_->message_ = message.substr(0, message.find("; ignoring"));
  }
  const std::string& message() const { return message_; }

 private:
  static thread_local Remark* current_;
  bool anchors_checked_;
  std::string message_;
};
thread_local Remark* Remark::current_ = nullptr;

}  // namespace
}  // namespace bl

// The library reports through these two functions: errors become exceptions with nothing but the
// message, and warnings go to the Remark of this thread.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw XGrammarError(message);
}
void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  bl::Remark::add(message);
}

}  // namespace xgrammar

namespace bl {
namespace {

// The library's message on one line, without references to its source code.
std::string one_line(std::string message) {
  constexpr std::string_view kCheck = "Check failed: ";
  constexpr std::string_view kFalse = "is false: ";
  if (const auto check = message.find(kCheck); check != message.npos) {
    const auto end = message.find(kFalse, check);
    const std::size_t from = end == message.npos ? check : end + kFalse.size();
    message.erase(check, from - check);
  }
  for (char& c : message) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  while (!message.empty() && message.back() == ' ') message.pop_back();
  constexpr std::size_t kShown = 300;
  if (message.size() > kShown) {
    std::size_t cut = kShown;
    while (cut > 0 && is_continuation(message[cut])) --cut;
    message = message.substr(0, cut) + "…";
  }
  return message.empty() ? "it is malformed" : message;
}

// Rewrites what the library reads differently: the dots of regular expressions, grammars, and JSON
// schemas, which become grammars.
void translate_formats(OrderedJson& part, const ConstraintSpec& spec) {
  if (!part.is_structured()) return;
  if (is_plain_schema_format(part)) {
    part = {{"type", "grammar"},
            {"grammar", grammar_of_schema(part["json_schema"], {.whitespace = spec.whitespace,
                                                                .closed = spec.strict,
                                                                .tool_parameters = part.value(
                                                                    "tool_parameters", false)})}};
    return;
  }
  const OrderedJson type = part.is_object() ? part.value("type", OrderedJson()) : OrderedJson();
  for (auto& [key, value] : part.items()) {
    if (type == "regex" && key == "pattern" && value.is_string()) {
      value = with_plain_dots(value.get_ref<const std::string&>());
    } else if (type == "grammar" && key == "grammar" && value.is_string()) {
      value = library_grammar(value.get_ref<const std::string&>());
    } else {
      translate_formats(value, spec);
    }
  }
}

std::string translated_tag(const ConstraintSpec& spec) {
  OrderedJson tag = parse_ordered_json(spec.text, "structural tag");
  translate_formats(tag, spec);
  return json_text(tag);
}

// Calls the library and turns its exceptions into Errors. Errors of a work budget pass through.
template <class F>
auto guarded(ErrorCode code, const char* what, const F& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kOutOfMemory, "{}: out of memory", what);
  } catch (const std::exception& error) {
    fail(code, "{}: {}", what, one_line(error.what()));
  }
}

// A set of tokens, one bit each.
class TokenBits {
 public:
  explicit TokenBits(std::size_t vocab) : words_((vocab + 31) / 32) {}
  void add(std::int32_t id) { word(id) |= bit(id); }
  void remove(std::int32_t id) { word(id) &= ~bit(id); }
  bool has(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) / 32 < words_.size() &&
           (words_[static_cast<std::size_t>(id) / 32] & bit(id)) != 0;
  }
  void clear_in(std::span<std::uint32_t> words) const {
    for (std::size_t i = 0; i < words_.size(); ++i) words[i] &= ~words_[i];
  }

 private:
  static std::uint32_t bit(std::int32_t id) { return std::uint32_t{1} << id % 32; }
  std::uint32_t& word(std::int32_t id) { return words_[static_cast<std::size_t>(id) / 32]; }
  std::vector<std::uint32_t> words_;
};

// Calls visit(id) for every token that a structural tag names by its id.
void visit_named_tokens(const OrderedJson& part, const std::function<void(std::int32_t)>& visit) {
  if (!part.is_structured()) return;
  const auto visit_id = [&](const OrderedJson& value) {
    if (value.is_number_integer()) visit(value.get<std::int32_t>());
  };
  for (const auto& [key, value] : part.items()) {
    if (part.is_object() && key == "token") visit_id(value);
    const bool is_list = key == "exclude_tokens" || key == "trigger_tokens";
    if (part.is_object() && is_list && value.is_array()) {
      for (const OrderedJson& one : value) visit_id(one);
    }
    if (part.is_object() && key == "rules" && value.is_array()) {
      for (const OrderedJson& rule : value) {
        if (rule.is_array() && !rule.empty()) visit_id(rule[0]);
      }
    }
    visit_named_tokens(value, visit);
  }
}

class XWalk final : public GrammarWalk {
 public:
  // `barred`: tokens that never may follow.
  XWalk(const xgrammar::CompiledGrammar& grammar, std::size_t vocab,
        std::shared_ptr<const TokenBits> barred)
      : matcher_(guarded(ErrorCode::kLimit, "the constraint",
                         [&] { return xgrammar::GrammarMatcher(grammar); })),
        vocab_(vocab),
        barred_(std::move(barred)) {}

  bool fill(std::span<std::uint32_t> words) override {
    auto shape = static_cast<std::int64_t>((vocab_ + 31) / 32);
    DLTensor tensor{.data = words.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLInt, 32, 1},
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    guarded(ErrorCode::kLimit, "the constraint",
            [&] { return matcher_.FillNextTokenBitmask(&tensor); });
    if (vocab_ % 32 != 0) words[vocab_ / 32] &= (std::uint32_t{1} << vocab_ % 32) - 1;
    barred_->clear_in(words);
    return std::any_of(words.begin(), words.end(), [](std::uint32_t word) { return word != 0; });
  }
  bool accept(std::int32_t token) override {
    return !barred_->has(token) && guarded(ErrorCode::kLimit, "the constraint",
                                           [&] { return matcher_.AcceptToken(token); });
  }
  void rollback(std::int32_t tokens) override {
    guarded(ErrorCode::kLimit, "the constraint", [&] {
      matcher_.Rollback(tokens);
      return true;
    });
  }
  bool complete() const override { return matcher_.IsCompleted(); }

 private:
  xgrammar::GrammarMatcher matcher_;
  std::size_t vocab_;
  std::shared_ptr<const TokenBits> barred_;
};

class XGrammar final : public CompiledGrammar {
 public:
  XGrammar(xgrammar::CompiledGrammar grammar, std::size_t vocab,
           std::shared_ptr<const TokenBits> barred)
      : grammar_(std::move(grammar)), vocab_(vocab), barred_(std::move(barred)) {}
  std::size_t bytes() const override { return grammar_.MemorySizeBytes(); }
  std::unique_ptr<GrammarWalk> start() const override {
    return std::make_unique<XWalk>(grammar_, vocab_, barred_);
  }

 private:
  xgrammar::CompiledGrammar grammar_;
  std::size_t vocab_;
  std::shared_ptr<const TokenBits> barred_;
};

class XLibrary final : public GrammarLibrary {
 public:
  // Without stop tokens: the caller decides where an answer may end.
  XLibrary(const std::vector<std::string>& tokens, const std::vector<std::int32_t>& special)
      : vocab_(tokens.size()),
        tokens_(with_special(tokens, special), xgrammar::VocabType::RAW, std::nullopt,
                std::vector<std::int32_t>{}) {
    auto bits = std::make_shared<TokenBits>(vocab_);
    for (const std::int32_t id : special) bits->add(id);
    special_ = std::move(bits);
    // For nested JSON; the limit in validate() is lower.
    xgrammar::SetMaxRecursionDepth(1000);
  }

  std::unique_ptr<CompiledGrammar> compile(const ConstraintSpec& spec) const override {
    const std::string what = fmt::format("the {} cannot be used", name_of(spec.kind));
    return guarded(ErrorCode::kInvalidArgument, what.c_str(), [&] {
      // Compile on this thread alone, because errors and budgets belong to a thread.
      xgrammar::GrammarCompiler compiler(tokens_, 1, false);
      // Anchors in a Lark grammar have not been checked; only the library sees them.
      const Remark remark(spec.kind != Kind::kGrammar);
      auto grammar =
          std::make_unique<XGrammar>(compiler.CompileGrammar(parse(spec)), vocab_, barred_by(spec));
      if (!remark.message().empty()) {
        fail(ErrorCode::kInvalidArgument, "{}: {}", what, one_line(remark.message()));
      }
      return grammar;
    });
  }

 private:
  // The library knows no tokens without bytes, and no text has this byte.
  static std::vector<std::string> with_special(std::vector<std::string> tokens,
                                               const std::vector<std::int32_t>& special) {
    for (const std::int32_t id : special) {
      std::string& bytes = tokens[static_cast<std::size_t>(id)];
      if (bytes.empty()) bytes = "\xff";
    }
    return tokens;
  }

  // The special tokens that the constraint does not name.
  std::shared_ptr<const TokenBits> barred_by(const ConstraintSpec& spec) const {
    if (spec.kind != Kind::kStructuralTag) return special_;
    auto barred = std::make_shared<TokenBits>(*special_);
    visit_named_tokens(parse_ordered_json(spec.text, "structural tag"), [&](std::int32_t id) {
      if (barred->has(id)) barred->remove(id);
    });
    return barred;
  }

  xgrammar::Grammar parse(const ConstraintSpec& spec) const {
    switch (spec.kind) {
      case Kind::kJsonObject:
        return schema(R"({"type": "object"})", {.whitespace = spec.whitespace});
      case Kind::kJsonSchema:
        return schema(spec.text, {.whitespace = spec.whitespace,
                                  .closed = spec.strict,
                                  .tool_parameters = spec.tool_parameters});
      case Kind::kRegex:
        return xgrammar::Grammar::FromEBNF(regex_grammar(spec.text));
      case Kind::kStructuralTag: {
        auto result = xgrammar::Grammar::FromStructuralTag(translated_tag(spec), tokens_);
        if (const auto* error = std::get_if<1>(&result)) {
          std::visit(
              [](const auto& e) { fail(ErrorCode::kInvalidArgument, "{}", one_line(e.what())); },
              *error);
        }
        return std::get<0>(std::move(result));
      }
      case Kind::kNone:
      case Kind::kGrammar:
        break;
    }
    if (spec.text.find("::=") == spec.text.npos) {
      return xgrammar::Grammar::FromLark(spec.text, tokens_);
    }
    return xgrammar::Grammar::FromEBNF(library_grammar(spec.text));
  }

  static xgrammar::Grammar schema(const std::string& text, const JsonForm& form) {
    return xgrammar::Grammar::FromEBNF(
        grammar_of_schema(parse_ordered_json(text, "the JSON schema"), form));
  }

  std::size_t vocab_;
  xgrammar::TokenizerInfo tokens_;
  std::shared_ptr<const TokenBits> special_;
};

}  // namespace

std::string grammar_of_embedded_schema(const std::string& text) {
  return grammar_of_schema(parse_ordered_json(text, "the JSON schema"));
}

std::unique_ptr<GrammarLibrary> open_grammar_library(std::vector<std::string> tokens,
                                                     std::vector<std::int32_t> special) {
  return std::make_unique<XLibrary>(tokens, special);
}

}  // namespace bl
