#include <optional>

#include "text/jinja/big_number.h"
#include "text/jinja/builtin.h"
#include "text/jinja/number.h"
#include "text/jinja/parser_state.h"

namespace bl::jinja {
namespace {

// The evaluator's recursion can take this height, with room to spare.
constexpr std::uint16_t kMaxHeight = 500;

struct SymbolOp {
  Token token;
  BinaryOp op;
};

std::optional<CompareOp> compare_op(Token token) {
  switch (token) {
    case Token::kEq:
      return CompareOp::kEq;
    case Token::kNe:
      return CompareOp::kNe;
    case Token::kLt:
      return CompareOp::kLt;
    case Token::kLe:
      return CompareOp::kLe;
    case Token::kGt:
      return CompareOp::kGt;
    case Token::kGe:
      return CompareOp::kGe;
    default:
      return std::nullopt;
  }
}

}  // namespace

void Parser::raise(Expr* node, const Expr* child) {
  if (child == nullptr || child->height < node->height) return;
  if (child->height >= kMaxHeight) too_deep();
  node->height = static_cast<std::uint16_t>(child->height + 1);
}

void Parser::raise(Expr* node, const CallItems& args) {
  for (const Expr* item : args.positional) raise(node, item);
  for (const KeywordItem& item : args.keywords) raise(node, item.value);
  raise(node, args.star);
  raise(node, args.double_star);
}

const Expr* Parser::constant(const Value& value, std::uint32_t line) {
  auto* node = make<ConstantExpr>(ExprKind::kConstant, line);
  node->value = value;
  node->height = 1;
  return node;
}

const Expr* Parser::binary(BinaryOp op, const Expr* left, const Expr* right, std::uint32_t line) {
  auto* node = make<BinaryExpr>(ExprKind::kBinary, line);
  node->op = op;
  node->left = left;
  node->right = right;
  raise(node, left);
  raise(node, right);
  return node;
}

const Expr* Parser::parse_expression(bool with_conditional) {
  return with_conditional ? parse_conditional() : parse_or();
}

const Expr* Parser::parse_conditional() {
  const std::size_t mark = unknown_.size();
  std::uint32_t line = current().line;
  const Expr* then = parse_or();
  while (skip_word("if")) {
    auto* node = make<ConditionalExpr>(ExprKind::kConditional, line);
    node->then = then;
    node->test = parse_or();
    if (skip_word("else")) {
      const Level level(*this);
      node->otherwise = parse_conditional();
    }
    raise(node, node->test);
    raise(node, node->then);
    raise(node, node->otherwise);
    unknown_.resize(mark);
    then = node;
    line = current().line;
  }
  return then;
}

const Expr* Parser::parse_or() {
  const Expr* left = parse_and();
  while (at_word("or")) {
    auto* node = make<LogicalExpr>(ExprKind::kLogical, next().line);
    node->is_and = false;
    node->left = left;
    node->right = parse_and();
    raise(node, node->left);
    raise(node, node->right);
    left = node;
  }
  return left;
}

const Expr* Parser::parse_and() {
  const Expr* left = parse_not();
  while (at_word("and")) {
    auto* node = make<LogicalExpr>(ExprKind::kLogical, next().line);
    node->is_and = true;
    node->left = left;
    node->right = parse_not();
    raise(node, node->left);
    raise(node, node->right);
    left = node;
  }
  return left;
}

const Expr* Parser::parse_not() {
  if (!at_word("not")) return parse_compare();
  const Level level(*this);
  auto* node = make<UnaryExpr>(ExprKind::kUnary, next().line);
  node->op = UnaryOp::kNot;
  node->operand = parse_not();
  raise(node, node->operand);
  return node;
}

const Expr* Parser::parse_compare() {
  const std::uint32_t line = current().line;
  const Expr* left = parse_sum();
  std::vector<Comparison> rest;
  for (;;) {
    std::optional<CompareOp> op = compare_op(current().type);
    if (op) {
      next();
    } else if (skip_word("in")) {
      op = CompareOp::kIn;
    } else if (at_word("not") && is_word(look(), "in")) {
      next();
      next();
      op = CompareOp::kNotIn;
    } else {
      break;
    }
    rest.push_back({*op, parse_sum()});
  }
  if (rest.empty()) return left;
  auto* node = make<CompareExpr>(ExprKind::kCompare, line);
  node->left = left;
  node->rest = store(rest);
  raise(node, left);
  for (const Comparison& comparison : rest) raise(node, comparison.right);
  return node;
}

const Expr* Parser::parse_sum() {
  const std::uint32_t line = current().line;
  const Expr* left = parse_concat();
  while (at(Token::kAdd) || at(Token::kSub)) {
    const BinaryOp op = next().type == Token::kAdd ? BinaryOp::kAdd : BinaryOp::kSub;
    left = binary(op, left, parse_concat(), line);
  }
  return left;
}

const Expr* Parser::parse_concat() {
  const std::uint32_t line = current().line;
  std::vector<const Expr*> items{parse_product()};
  while (skip_if(Token::kTilde)) items.push_back(parse_product());
  if (items.size() == 1) return items[0];
  auto* node = make<ListExpr>(ExprKind::kConcat, line);
  node->items = store(items);
  for (const Expr* item : items) raise(node, item);
  return node;
}

const Expr* Parser::parse_product() {
  constexpr SymbolOp kOps[] = {{Token::kMul, BinaryOp::kMul},
                               {Token::kDiv, BinaryOp::kDiv},
                               {Token::kFloorDiv, BinaryOp::kFloorDiv},
                               {Token::kMod, BinaryOp::kMod}};
  const std::uint32_t line = current().line;
  const Expr* left = parse_power();
  for (;;) {
    const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                     [this](const SymbolOp& op) { return at(op.token); });
    if (found == std::end(kOps)) return left;
    next();
    left = binary(found->op, left, parse_power(), line);
  }
}

const Expr* Parser::parse_power() {
  const std::uint32_t line = current().line;
  const Expr* left = parse_unary(true);
  while (skip_if(Token::kPow)) left = binary(BinaryOp::kPow, left, parse_unary(true), line);
  return left;
}

const Expr* Parser::parse_unary(bool with_filter) {
  const Level level(*this);
  const Expr* node = nullptr;
  if (at(Token::kSub) || at(Token::kAdd)) {
    const LexedToken sign = next();
    auto* unary = make<UnaryExpr>(ExprKind::kUnary, sign.line);
    unary->op = sign.type == Token::kSub ? UnaryOp::kNegate : UnaryOp::kPlus;
    unary->operand = parse_unary(false);
    raise(unary, unary->operand);
    node = unary;
  } else {
    node = parse_primary();
  }
  node = parse_postfix(node);
  return with_filter ? parse_filters_and_tests(node) : node;
}

const Expr* Parser::parse_primary() {
  const LexedToken& token = current();
  switch (token.type) {
    case Token::kName:
      return parse_name(next());
    case Token::kString:
      return parse_strings();
    case Token::kInteger:
    case Token::kFloat:
      return parse_number(next());
    case Token::kLeftParen: {
      next();
      TupleStyle style;
      style.may_be_empty = true;
      const Expr* node = parse_tuple(style);
      expect(Token::kRightParen);
      return node;
    }
    case Token::kLeftBracket:
      return parse_list();
    case Token::kLeftBrace:
      return parse_dict();
    default:
      unexpected("an expression");
  }
}

const Expr* Parser::parse_name(const LexedToken& token) {
  const std::string_view name = token.text;
  if (name == "true" || name == "True") return constant(Value::boolean(true), token.line);
  if (name == "false" || name == "False") return constant(Value::boolean(false), token.line);
  if (name == "none" || name == "None") return constant(Value::none(), token.line);
  if (name == "varargs") uses_varargs_ = true;
  if (name == "kwargs") uses_kwargs_ = true;
  if (name == "caller") uses_caller_ = true;
  auto* node = make<NameExpr>(ExprKind::kName, token.line);
  node->name = intern(name);
  return node;
}

const Expr* Parser::parse_strings() {
  const std::uint32_t line = current().line;
  std::string text;
  while (at(Token::kString)) text += unescape(next());
  return constant(Value::string(arena_.copy(text)), line);
}

const Expr* Parser::parse_number(const LexedToken& token) {
  std::string digits;
  for (const char c : token.text) {
    if (c != '_') digits.push_back(c);
  }
  if (token.type == Token::kFloat) {
    return constant(Value::of_float(parse_double(digits)), token.line);
  }
  if (digits.size() > kMaxIntDigits) fail_at(token.line, "a number has too many digits");
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
  }
  const std::string_view value = std::string_view(digits).substr(base == 10 ? 0 : 2);
  return constant(BigNumber::parse(value, base).to_value(arena_), token.line);
}

const Expr* Parser::parse_list() {
  auto* node = make<ListExpr>(ExprKind::kList, expect(Token::kLeftBracket).line);
  std::vector<const Expr*> items;
  while (!at(Token::kRightBracket)) {
    if (!items.empty()) expect(Token::kComma);
    if (at(Token::kRightBracket)) break;
    items.push_back(parse_expression());
    raise(node, items.back());
  }
  next();
  node->items = store(items);
  return node;
}

const Expr* Parser::parse_dict() {
  auto* node = make<DictExpr>(ExprKind::kDict, expect(Token::kLeftBrace).line);
  std::vector<DictItem> items;
  while (!at(Token::kRightBrace)) {
    if (!items.empty()) expect(Token::kComma);
    if (at(Token::kRightBrace)) break;
    DictItem item{parse_expression(), nullptr};
    expect(Token::kColon);
    item.value = parse_expression();
    raise(node, item.key);
    raise(node, item.value);
    items.push_back(item);
  }
  next();
  node->items = store(items);
  return node;
}

bool Parser::at_tuple_end(std::string_view end) const {
  return at(Token::kVariableEnd) || at(Token::kBlockEnd) || at(Token::kRightParen) ||
         (!end.empty() && at_word(end));
}

const Expr* Parser::parse_tuple(const TupleStyle& style) {
  const std::uint32_t line = current().line;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect(Token::kComma);
    if (at_tuple_end(style.end)) break;
    items.push_back(parse_expression(style.with_conditional));
    if (!at(Token::kComma)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!style.may_be_empty) unexpected("an expression");
  }
  auto* node = make<ListExpr>(ExprKind::kTuple, line);
  node->items = store(items);
  for (const Expr* item : items) raise(node, item);
  return node;
}

const Expr* Parser::parse_postfix(const Expr* node) {
  for (;;) {
    if (at(Token::kDot) || at(Token::kLeftBracket)) {
      node = parse_subscript(node);
    } else if (at(Token::kLeftParen)) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

const Expr* Parser::parse_filters_and_tests(const Expr* node) {
  for (;;) {
    if (at(Token::kPipe)) {
      node = parse_filters(node, false);
    } else if (at_word("is")) {
      node = parse_test(node);
    } else if (at(Token::kLeftParen)) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

const Expr* Parser::parse_subscript(const Expr* node) {
  const LexedToken mark = next();
  if (mark.type == Token::kDot && at(Token::kName)) {
    auto* attribute = make<AttributeExpr>(ExprKind::kAttribute, mark.line);
    attribute->object = node;
    attribute->name = next().text;
    raise(attribute, node);
    return attribute;
  }
  auto* subscript = make<SubscriptExpr>(ExprKind::kSubscript, mark.line);
  subscript->object = node;
  if (mark.type == Token::kDot) {
    if (!at(Token::kInteger)) unexpected("a name or number after '.'");
    subscript->index = parse_number(next());
  } else {
    std::vector<const Expr*> parts;
    while (!at(Token::kRightBracket)) {
      if (!parts.empty()) expect(Token::kComma);
      parts.push_back(parse_subscribed());
    }
    next();
    if (parts.size() == 1) {
      subscript->index = parts[0];
    } else {
      auto* tuple = make<ListExpr>(ExprKind::kTuple, mark.line);
      tuple->items = store(parts);
      for (const Expr* part : parts) raise(tuple, part);
      subscript->index = tuple;
    }
  }
  raise(subscript, node);
  raise(subscript, subscript->index);
  return subscript;
}

const Expr* Parser::parse_subscribed() {
  const std::uint32_t line = current().line;
  const Expr* start = nullptr;
  if (!at(Token::kColon)) {
    start = parse_expression();
    if (!at(Token::kColon)) return start;
  }
  next();
  const auto optional_part = [this]() -> const Expr* {
    const bool absent = at(Token::kColon) || at(Token::kRightBracket) || at(Token::kComma);
    return absent ? nullptr : parse_expression();
  };
  auto* slice = make<SliceExpr>(ExprKind::kSlice, line);
  slice->start = start;
  slice->stop = optional_part();
  if (skip_if(Token::kColon)) slice->step = optional_part();
  raise(slice, slice->start);
  raise(slice, slice->stop);
  raise(slice, slice->step);
  return slice;
}

const Expr* Parser::parse_call(const Expr* callee) {
  auto* node = make<CallExpr>(ExprKind::kCall, current().line);
  node->callee = callee;
  node->args = parse_call_items();
  raise(node, callee);
  raise(node, node->args);
  return node;
}

CallItems Parser::parse_call_items() {
  const std::uint32_t line = expect(Token::kLeftParen).line;
  CallItems items;
  std::vector<const Expr*> positional;
  std::vector<KeywordItem> keywords;
  const auto ensure = [&](bool fine) {
    if (!fine) fail_at(line, "the arguments of a call are in the wrong order");
  };
  bool first = true;
  while (!at(Token::kRightParen)) {
    if (!first) {
      expect(Token::kComma);
      if (at(Token::kRightParen)) break;  // a comma may end the list
    }
    first = false;
    if (skip_if(Token::kMul)) {
      ensure(items.star == nullptr && items.double_star == nullptr);
      items.star = parse_expression();
    } else if (skip_if(Token::kPow)) {
      ensure(items.double_star == nullptr);
      items.double_star = parse_expression();
    } else if (at(Token::kName) && look().type == Token::kAssign) {
      ensure(items.double_star == nullptr);
      const std::string_view name = next().text;
      next();
      keywords.push_back({name, parse_expression()});
    } else {
      ensure(items.star == nullptr && items.double_star == nullptr && keywords.empty());
      positional.push_back(parse_expression());
    }
  }
  next();
  items.positional = store(positional);
  items.keywords = store(keywords);
  return items;
}

const Builtin* Parser::find_builtin(bool is_filter, std::string_view name, std::uint32_t line) {
  const Builtin* found = is_filter ? find_filter(name) : find_test(name);
  if (found == nullptr) unknown_.push_back({is_filter, name, line});
  return found;
}

const Expr* Parser::parse_filters(const Expr* node, bool begins_with_name) {
  while (begins_with_name || skip_if(Token::kPipe)) {
    begins_with_name = false;
    const LexedToken token = expect(Token::kName);
    std::string name(token.text);
    while (skip_if(Token::kDot)) name.append(".").append(expect(Token::kName).text);
    auto* filter = make<FilterExpr>(ExprKind::kFilter, token.line);
    filter->input = node;
    filter->name = arena_.copy(name);
    filter->builtin = find_builtin(true, filter->name, token.line);
    if (at(Token::kLeftParen)) filter->args = parse_call_items();
    raise(filter, node);
    raise(filter, filter->args);
    node = filter;
  }
  return node;
}

const Expr* Parser::parse_test(const Expr* node) {
  const std::uint32_t line = next().line;
  const bool negated = skip_word("not");
  std::string name(expect(Token::kName).text);
  while (skip_if(Token::kDot)) name.append(".").append(expect(Token::kName).text);
  auto* test = make<FilterExpr>(ExprKind::kTest, line);
  test->input = node;
  test->name = arena_.copy(name);
  test->builtin = find_builtin(false, test->name, line);
  if (at(Token::kLeftParen)) {
    test->args = parse_call_items();
  } else if ((at(Token::kName) && !at_any_word({"else", "or", "and"})) || at(Token::kString) ||
             at(Token::kInteger) || at(Token::kFloat) || at(Token::kLeftBracket) ||
             at(Token::kLeftBrace)) {
    if (at_word("is")) fail_at(line, "tests cannot be chained with 'is'");
    const std::vector<const Expr*> argument{parse_postfix(parse_primary())};
    test->args.positional = store(argument);
  }
  raise(test, node);
  raise(test, test->args);
  if (!negated) return test;
  auto* inverse = make<UnaryExpr>(ExprKind::kUnary, line);
  inverse->op = UnaryOp::kNot;
  inverse->operand = test;
  raise(inverse, test);
  return inverse;
}

}  // namespace bl::jinja
