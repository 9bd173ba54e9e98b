#include <set>

#include "text/jinja/parser_state.h"
#include "text/jinja/scope_analysis.h"

namespace bl::jinja {
namespace {

std::string describe(const LexedToken& token) {
  switch (token.type) {
    case Token::kEnd:
      return "the end of the template";
    case Token::kText:
      return "text";
    case Token::kVariableBegin:
      return "'{{'";
    case Token::kVariableEnd:
      return "'}}'";
    case Token::kBlockBegin:
      return "'{%'";
    case Token::kBlockEnd:
      return "'%}'";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace

ParsedTemplate parse_template(std::string_view source, std::string_view name,
                              const TemplateLimits& limits, Arena& arena) {
  return Parser(source, name, limits, arena).run();
}

ParsedTemplate Parser::run() {
  for (const std::string_view name : {"loop", "varargs", "kwargs", "caller", "self"}) intern(name);
  result_.body = parse_body({});
  require_known(0);
  analyze_scopes(result_, arena_);
  return std::move(result_);
}

void Parser::too_deep() const {
  fail(ErrorCode::kLimit, "{}, line {}: the template is nested too deeply", name_, current().line);
}

void Parser::unexpected(std::string_view wanted) const {
  fail_at(current().line, "expected {}, found {}", wanted, describe(current()));
}

LexedToken Parser::expect(Token type) {
  if (at(type)) return next();
  switch (type) {
    case Token::kName:
      unexpected("a name");
    case Token::kBlockEnd:
      unexpected("'%}'");
    case Token::kVariableEnd:
      unexpected("'}}'");
    case Token::kComma:
      unexpected("','");
    case Token::kColon:
      unexpected("':'");
    case Token::kAssign:
      unexpected("'='");
    case Token::kLeftParen:
      unexpected("'('");
    case Token::kRightParen:
      unexpected("')'");
    default:
      unexpected("something else");
  }
}

void Parser::expect_word(std::string_view word) {
  if (!skip_word(word)) unexpected(fmt::format("'{}'", word));
}

NameId Parser::intern(std::string_view name) {
  const auto [place, fresh] =
      result_.name_ids.try_emplace(name, static_cast<NameId>(result_.names.size()));
  if (fresh) result_.names.push_back(name);
  return place->second;
}

void Parser::require_known(std::size_t mark) const {
  if (unknown_.size() <= mark) return;
  const Unknown& first = unknown_[mark];
  fail_at(first.line, "there is no {} named '{}'", first.is_filter ? "filter" : "test", first.name);
}

// Parses statements up to the word of a tag in `ends`; if `ends` is empty, up to the end of the
// template.
Body Parser::parse_body(Words ends) {
  const Level level(*this);
  std::vector<const Statement*> body;
  for (;;) {
    const LexedToken token = next();
    switch (token.type) {
      case Token::kText: {
        auto* text = make_statement<TextStatement>(StatementKind::kText, token.line);
        text->text = token.text;
        body.push_back(text);
        break;
      }
      case Token::kVariableBegin: {
        auto* output = make_statement<OutputStatement>(StatementKind::kOutput, token.line);
        output->value = parse_tuple({});
        expect(Token::kVariableEnd);
        body.push_back(output);
        break;
      }
      case Token::kBlockBegin:
        if (ends.size() > 0 && at_any_word(ends)) return store(body);
        if (at_word("print")) {
          parse_print(body);
        } else {
          body.push_back(parse_statement());
        }
        expect(Token::kBlockEnd);
        break;
      default:
        if (ends.size() == 0) return store(body);
        fail_at(token.line, "the template ends without {{% {} %}}", *(ends.end() - 1));
    }
  }
}

Body Parser::parse_scope(Words ends) {
  const std::size_t mark = unknown_.size();
  expect(Token::kBlockEnd);
  const Body body = parse_body(ends);
  require_known(mark);
  return body;
}

const Statement* Parser::parse_statement() {
  if (!at(Token::kName)) unexpected("the name of a tag");
  const std::string_view tag = current().text;
  struct Entry {
    std::string_view tag;
    const Statement* (Parser::*parse)();
  };
  constexpr Entry kTags[] = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"with", &Parser::parse_with},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"block", &Parser::parse_block},
      {"generation", &Parser::parse_generation},
      {"autoescape", &Parser::parse_autoescape},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
      {"include", &Parser::parse_unsupported},
      {"import", &Parser::parse_unsupported},
      {"from", &Parser::parse_unsupported},
      {"extends", &Parser::parse_unsupported},
  };
  for (const Entry& entry : kTags) {
    if (entry.tag == tag) return (this->*entry.parse)();
  }
  fail_at(current().line, "unknown tag '{}'", tag);
}

const Statement* Parser::parse_if() {
  const std::size_t mark = unknown_.size();
  auto* node = make_statement<IfStatement>(StatementKind::kIf, next().line);
  std::vector<Branch> branches;
  TupleStyle style;
  style.with_conditional = false;
  for (;;) {
    Branch branch{parse_tuple(style), {}};
    expect(Token::kBlockEnd);
    branch.body = parse_body({"elif", "else", "endif"});
    branches.push_back(branch);
    if (skip_word("elif")) continue;
    if (skip_word("else")) {
      expect(Token::kBlockEnd);
      branches.push_back({nullptr, parse_body({"endif"})});
    }
    expect_word("endif");
    break;
  }
  node->branches = store(branches);
  unknown_.resize(mark);  // unknown filters matter only in a branch that is taken
  return node;
}

const Statement* Parser::parse_for() {
  auto* node = make_statement<ForStatement>(StatementKind::kFor, next().line);
  node->body_scope = arena_.make<ScopeInfo>();
  node->test_scope = arena_.make<ScopeInfo>();
  node->otherwise_scope = arena_.make<ScopeInfo>();
  const int loop_assignments = loop_assignments_;
  node->target = parse_target("in", false);
  expect_word("in");
  TupleStyle style;
  style.with_conditional = false;
  style.end = "recursive";
  node->iterable = parse_tuple(style);
  const std::size_t mark = unknown_.size();
  node->test = skip_word("if") ? parse_expression() : nullptr;
  require_known(mark);
  node->recursive = skip_word("recursive");
  ++loops_;
  node->body = parse_scope({"endfor", "else"});
  --loops_;
  if (skip_word("else")) node->otherwise = parse_scope({"endfor"});
  expect_word("endfor");
  if (loop_assignments_ > loop_assignments) {
    fail_at(node->line, "a for loop may not assign to 'loop'");
  }
  return node;
}

const Statement* Parser::parse_set() {
  const std::uint32_t line = next().line;
  const Target target = parse_target({}, true);
  if (skip_if(Token::kAssign)) {
    auto* node = make_statement<SetStatement>(StatementKind::kSet, line);
    node->target = target;
    node->value = parse_tuple({});
    return node;
  }
  auto* node = make_statement<SetBlockStatement>(StatementKind::kSetBlock, line);
  node->scope = arena_.make<ScopeInfo>();
  node->target = target;
  node->filter = parse_filters(nullptr, false);
  node->body = parse_scope({"endset"});
  expect_word("endset");
  return node;
}

const Statement* Parser::parse_with() {
  auto* node = make_statement<WithStatement>(StatementKind::kWith, next().line);
  node->scope = arena_.make<ScopeInfo>();
  std::vector<WithItem> items;
  while (!at(Token::kBlockEnd)) {
    if (!items.empty()) expect(Token::kComma);
    WithItem item{parse_target({}, false), nullptr};
    expect(Token::kAssign);
    item.value = parse_expression();
    items.push_back(item);
  }
  node->items = store(items);
  node->body = parse_scope({"endwith"});
  expect_word("endwith");
  return node;
}

void Parser::parse_parameters(MacroStatement& macro) {
  std::vector<Parameter> parameters;
  std::set<NameId> names;
  expect(Token::kLeftParen);
  while (!at(Token::kRightParen)) {
    if (!parameters.empty()) expect(Token::kComma);
    const std::string_view name = parse_target_name();
    Parameter parameter{intern(name), name, nullptr};
    if (skip_if(Token::kAssign)) {
      parameter.initial = parse_expression();
    } else if (!parameters.empty() && parameters.back().initial != nullptr) {
      fail_at(current().line, "a parameter without a default follows one with a default");
    }
    if (!names.insert(parameter.name).second) {
      fail_at(current().line, "parameter '{}' is named twice", name);
    }
    parameters.push_back(parameter);
  }
  next();
  macro.parameters = store(parameters);
}

void Parser::parse_macro_body(MacroStatement& macro, std::string_view end) {
  const bool varargs = std::exchange(uses_varargs_, false);
  const bool kwargs = std::exchange(uses_kwargs_, false);
  const bool caller = std::exchange(uses_caller_, false);
  const int loops = std::exchange(loops_, 0);
  macro.scope = arena_.make<ScopeInfo>();
  macro.body = parse_scope({end});
  expect_word(end);
  macro.takes_varargs = uses_varargs_;
  macro.takes_kwargs = uses_kwargs_;
  macro.takes_caller = uses_caller_;
  for (const Parameter& parameter : macro.parameters) {
    // A parameter of that name is an ordinary parameter.
    if (parameter.name == kNameVarargs) macro.takes_varargs = false;
    if (parameter.name == kNameKwargs) macro.takes_kwargs = false;
    if (parameter.name == kNameCaller && uses_caller_ && parameter.initial == nullptr) {
      fail_at(macro.line, "the parameter 'caller' needs a default");
    }
  }
  uses_varargs_ = uses_varargs_ || varargs;
  uses_kwargs_ = uses_kwargs_ || kwargs;
  uses_caller_ = uses_caller_ || caller;
  loops_ = loops;
}

const Statement* Parser::parse_macro() {
  auto* node = make_statement<MacroStatement>(StatementKind::kMacro, next().line);
  const std::size_t mark = unknown_.size();
  node->text_name = parse_target_name();
  node->name = intern(node->text_name);
  parse_parameters(*node);
  require_known(mark);
  parse_macro_body(*node, "endmacro");
  return node;
}

const Statement* Parser::parse_call_block() {
  auto* node = make_statement<CallBlockStatement>(StatementKind::kCallBlock, next().line);
  node->caller.kind = StatementKind::kMacro;
  node->caller.line = node->line;
  node->caller.text_name = "caller";
  node->caller.name = kNameCaller;
  if (at(Token::kLeftParen)) parse_parameters(node->caller);
  const Expr* call = parse_expression();
  if (call->kind != ExprKind::kCall) fail_at(node->line, "a call block needs a call");
  node->call = static_cast<const CallExpr*>(call);
  parse_macro_body(node->caller, "endcall");
  return node;
}

const Statement* Parser::parse_filter_block() {
  auto* node = make_statement<FilterBlockStatement>(StatementKind::kFilterBlock, next().line);
  node->scope = arena_.make<ScopeInfo>();
  node->filter = parse_filters(nullptr, true);
  node->body = parse_scope({"endfilter"});
  expect_word("endfilter");
  return node;
}

const Statement* Parser::parse_block() {
  auto* node = make_statement<BlockStatement>(StatementKind::kBlock, next().line);
  node->scope = arena_.make<ScopeInfo>();
  node->name = expect(Token::kName).text;
  node->scoped = skip_word("scoped");
  const bool required = skip_word("required");
  const int loops = std::exchange(loops_, 0);
  node->body = parse_scope({"endblock"});
  loops_ = loops;
  expect_word("endblock");
  if (!at(Token::kBlockEnd)) expect_word(node->name);
  if (!result_.blocks.emplace(node->name, node).second) {
    fail_at(node->line, "block '{}' is defined twice", node->name);
  }
  if (!required) return node;
  // Only a template that extends this one could provide the block.
  auto* missing = make_statement<UnsupportedStatement>(StatementKind::kUnsupported, node->line);
  missing->name = "block ... required";
  return missing;
}

const Statement* Parser::parse_generation() {
  auto* node = make_statement<ScopeStatement>(StatementKind::kScope, next().line);
  node->scope = arena_.make<ScopeInfo>();
  const int loops = std::exchange(loops_, 0);
  node->body = parse_scope({"endgeneration"});
  loops_ = loops;
  expect_word("endgeneration");
  return node;
}

const Statement* Parser::parse_autoescape() {
  auto* node = make_statement<AutoescapeStatement>(StatementKind::kAutoescape, next().line);
  node->scope = arena_.make<ScopeInfo>();
  node->on = parse_expression();
  node->body = parse_scope({"endautoescape"});
  expect_word("endautoescape");
  return node;
}

const Statement* Parser::parse_loop_control() {
  const LexedToken token = next();
  if (loops_ == 0) fail_at(token.line, "'{}' is used outside of a loop", token.text);
  return make_statement<Statement>(
      token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, token.line);
}

const Statement* Parser::parse_unsupported() {
  const LexedToken token = next();
  auto* node = make_statement<UnsupportedStatement>(StatementKind::kUnsupported, token.line);
  node->name = token.text;
  while (!at(Token::kBlockEnd) && !at(Token::kEnd)) next();
  return node;
}

void Parser::parse_print(std::vector<const Statement*>& body) {
  const std::uint32_t line = next().line;
  for (bool first = true; !at(Token::kBlockEnd); first = false) {
    if (!first) expect(Token::kComma);
    auto* output = make_statement<OutputStatement>(StatementKind::kOutput, line);
    output->value = parse_expression();
    body.push_back(output);
  }
}

std::string_view Parser::parse_target_name() {
  const LexedToken token = expect(Token::kName);
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (token.text == word) fail_at(token.line, "cannot assign to '{}'", word);
  }
  return token.text;
}

Target Parser::parse_single_target(bool with_attribute) {
  if (at(Token::kLeftParen)) {
    next();
    Target target = parse_target({}, with_attribute);
    expect(Token::kRightParen);
    return target;
  }
  if (!at(Token::kName)) unexpected("a name to assign to");
  Target target;
  if (with_attribute && look().type == Token::kDot) {
    target.kind = TargetKind::kAttribute;
    target.name = intern(next().text);
    next();
    target.attribute = expect(Token::kName).text;
    return target;
  }
  target.name = intern(parse_target_name());
  if (target.name == kNameLoop) ++loop_assignments_;
  return target;
}

Target Parser::parse_target(std::string_view end, bool with_attribute) {
  const Level level(*this);
  std::vector<Target> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect(Token::kComma);
    if (at_tuple_end(end)) break;
    items.push_back(parse_single_target(with_attribute));
    if (!at(Token::kComma)) break;
    is_tuple = true;
  }
  if (items.empty()) unexpected("a name to assign to");
  if (!is_tuple) return items[0];
  Target target;
  target.kind = TargetKind::kTuple;
  target.items = store(items);
  return target;
}

}  // namespace bl::jinja
