#pragma once
// A recursive-descent parser in one class; its methods are in parser_expression.cc and
// parser_statement.cc.

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace bl::jinja {

class Parser {
 public:
  Parser(std::string_view source, std::string_view name, const TemplateLimits& limits, Arena& arena)
      : name_(name), limits_(limits), arena_(arena), tokens_(tokenize(source, name, arena)) {}

  ParsedTemplate run();

 private:
  using Words = std::initializer_list<std::string_view>;

  // --- tokens ---
  const LexedToken& current() const { return tokens_[at_]; }
  const LexedToken& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  LexedToken next() {
    const LexedToken token = current();
    if (token.type != Token::kEnd) ++at_;
    return token;
  }
  bool at(Token type) const { return current().type == type; }
  bool at_word(std::string_view word) const { return is_word(current(), word); }
  static bool is_word(const LexedToken& token, std::string_view word) {
    return token.type == Token::kName && token.text == word;
  }
  bool at_any_word(Words words) const {
    return std::any_of(words.begin(), words.end(),
                       [this](std::string_view word) { return at_word(word); });
  }
  bool skip_if(Token type) {
    if (!at(type)) return false;
    next();
    return true;
  }
  bool skip_word(std::string_view word) {
    if (!at_word(word)) return false;
    next();
    return true;
  }
  LexedToken expect(Token type);
  void expect_word(std::string_view word);
  [[noreturn]] void unexpected(std::string_view wanted) const;
  template <class... Args>
  [[noreturn]] void fail_at(std::uint32_t line, fmt::format_string<Args...> format,
                            Args&&... args) const {
    fail(ErrorCode::kInvalidFile, "{}, line {}: {}", name_, line,
         fmt::format(format, std::forward<Args>(args)...));
  }

  // Counts a level of nesting while it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > parser_.limits_.max_nesting) parser_.too_deep();
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.level_; }

   private:
    Parser& parser_;
  };
  [[noreturn]] void too_deep() const;

  // --- nodes ---
  template <class Node>
  Node* make(ExprKind kind, std::uint32_t line) {
    auto* node = arena_.make<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  template <class Node>
  Node* make_statement(StatementKind kind, std::uint32_t line) {
    auto* node = arena_.make<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  template <class T>
  std::span<const T> store(const std::vector<T>& items) {
    if (items.empty()) return {};
    T* place = arena_.array<T>(items.size());
    std::copy(items.begin(), items.end(), place);
    return {place, items.size()};
  }
  // Makes `node` higher than `child`; does nothing if `child` is null.
  void raise(Expr* node, const Expr* child);
  void raise(Expr* node, const CallItems& args);
  NameId intern(std::string_view name);

  // --- expressions ---
  const Expr* parse_expression(bool with_conditional = true);
  const Expr* parse_conditional();
  const Expr* parse_or();
  const Expr* parse_and();
  const Expr* parse_not();
  const Expr* parse_compare();
  const Expr* parse_sum();
  const Expr* parse_concat();
  const Expr* parse_product();
  const Expr* parse_power();
  const Expr* parse_unary(bool with_filter);
  const Expr* parse_primary();
  const Expr* parse_name(const LexedToken& token);
  const Expr* parse_strings();
  const Expr* parse_number(const LexedToken& token);
  const Expr* parse_postfix(const Expr* node);
  const Expr* parse_filters_and_tests(const Expr* node);
  const Expr* parse_filters(const Expr* node, bool begins_with_name);
  const Expr* parse_test(const Expr* node);
  const Expr* parse_subscript(const Expr* node);
  const Expr* parse_subscribed();
  const Expr* parse_call(const Expr* callee);
  CallItems parse_call_items();
  const Expr* parse_list();
  const Expr* parse_dict();
  // The style of expressions separated by commas, which are a tuple unless there is only one. `end`
  // is a word that ends them.
  struct TupleStyle {
    bool with_conditional = true;
    bool may_be_empty = false;
    std::string_view end;
  };
  const Expr* parse_tuple(const TupleStyle& style);
  bool at_tuple_end(std::string_view end) const;
  const Expr* binary(BinaryOp op, const Expr* left, const Expr* right, std::uint32_t line);
  const Expr* constant(const Value& value, std::uint32_t line);
  std::string unescape(const LexedToken& token) const;
  // Returns the filter or test called `name`, or null if there is none. That is an error unless it
  // turns out to stand in a branch that may not be reached.
  const Builtin* find_builtin(bool is_filter, std::string_view name, std::uint32_t line);
  // Fails if an unknown filter or test has been found since `mark`.
  void require_known(std::size_t mark) const;

  // --- statements ---
  Body parse_body(Words ends);
  // Parses a body that is a scope of its own, up to the word of its end tag.
  Body parse_scope(Words ends);
  const Statement* parse_statement();
  const Statement* parse_if();
  const Statement* parse_for();
  const Statement* parse_set();
  const Statement* parse_with();
  const Statement* parse_macro();
  const Statement* parse_call_block();
  const Statement* parse_filter_block();
  const Statement* parse_block();
  const Statement* parse_generation();
  const Statement* parse_autoescape();
  const Statement* parse_loop_control();
  const Statement* parse_unsupported();
  void parse_print(std::vector<const Statement*>& body);
  void parse_parameters(MacroStatement& macro);
  void parse_macro_body(MacroStatement& macro, std::string_view end);
  Target parse_target(std::string_view end, bool with_attribute);
  Target parse_single_target(bool with_attribute);
  std::string_view parse_target_name();

  struct Unknown {
    bool is_filter;
    std::string_view name;
    std::uint32_t line;
  };

  std::string_view name_;
  const TemplateLimits& limits_;
  Arena& arena_;
  std::vector<LexedToken> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;  // for-bodies around this place, within the macro
  int loop_assignments_ = 0;
  bool uses_varargs_ = false;
  bool uses_kwargs_ = false;
  bool uses_caller_ = false;
  std::vector<Unknown> unknown_;
  ParsedTemplate result_;
};

}  // namespace bl::jinja
