#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/dict.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {

Value Interpreter::evaluate(const Expr* expr) {
  switch (expr->kind) {  // leaves come first and do not pay for a level
    case ExprKind::kConstant:
      return as<ConstantExpr>(expr).value;
    case ExprKind::kName:
      rt_.step();
      return lookup(as<NameExpr>(expr).name);
    default:
      break;
  }
  rt_.step();
  const Depth depth(*this);
  switch (expr->kind) {
    case ExprKind::kTuple:
    case ExprKind::kList:
      return evaluate_list(as<ListExpr>(expr));
    case ExprKind::kDict:
      return evaluate_dict(as<DictExpr>(expr));
    case ExprKind::kUnary: {
      const auto& node = as<UnaryExpr>(expr);
      return unary(rt_, node.op, evaluate(node.operand));
    }
    case ExprKind::kBinary: {
      const auto& node = as<BinaryExpr>(expr);
      const Value left = evaluate(node.left);
      const Value right = evaluate(node.right);
      rt_.line = node.line;
      return binary(rt_, node.op, left, right);
    }
    case ExprKind::kLogical: {
      const auto& node = as<LogicalExpr>(expr);
      const Value left = evaluate(node.left);
      return truthy(left) == node.is_and ? evaluate(node.right) : left;
    }
    case ExprKind::kCompare:
      return evaluate_compare(as<CompareExpr>(expr));
    case ExprKind::kConcat:
      return evaluate_concat(as<ListExpr>(expr));
    case ExprKind::kConditional:
      return evaluate_conditional(as<ConditionalExpr>(expr));
    case ExprKind::kAttribute: {
      const auto& node = as<AttributeExpr>(expr);
      const Value object = evaluate(node.object);
      rt_.line = node.line;
      return get_attribute(rt_, object, node.name);
    }
    case ExprKind::kSubscript:
      return evaluate_subscript(as<SubscriptExpr>(expr));
    case ExprKind::kCall:
      return evaluate_call(as<CallExpr>(expr), {});
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return evaluate_filter(as<FilterExpr>(expr), {});
    default:
      rt_.fail("a slice stands where a value is needed");
  }
}

Value Interpreter::evaluate_list(const ListExpr& expr) {
  auto* items = rt_.arena.array<Value>(expr.items.size());
  for (std::size_t i = 0; i < expr.items.size(); ++i) items[i] = evaluate(expr.items[i]);
  const std::span<const Value> list(items, expr.items.size());
  return expr.kind == ExprKind::kList ? rt_.list(list) : rt_.tuple(list);
}

Value Interpreter::evaluate_dict(const DictExpr& expr) {
  DictBuilder builder(rt_, expr.items.size());
  for (const DictItem& item : expr.items) {
    const Value key = evaluate(item.key);
    builder.set(key, evaluate(item.value));
  }
  return builder.finish();
}

Value Interpreter::evaluate_concat(const ListExpr& expr) {
  constexpr std::size_t kLong = 128;  // worth growing in place
  Value text = str_of(rt_, evaluate(expr.items[0]));
  std::string rest;
  for (const Expr* item : expr.items.subspan(1)) {
    // Each value becomes text before the next one is evaluated.
    append_str(rt_, evaluate(item), rest);
  }
  rt_.line = expr.line;
  if (text.size >= kLong) return rt_.concat(text, rest);
  rest.insert(0, text.str());
  return rt_.string(rest);
}

Value Interpreter::evaluate_compare(const CompareExpr& expr) {
  Value left = evaluate(expr.left);
  for (const Comparison& comparison : expr.rest) {
    const Value right = evaluate(comparison.right);
    rt_.line = expr.line;
    if (!compare(rt_, comparison.op, left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const ConditionalExpr& expr) {
  if (truthy(evaluate(expr.test))) return evaluate(expr.then);
  if (expr.otherwise != nullptr) return evaluate(expr.otherwise);
  return rt_.undefined("the inline if-expression evaluated to false and has no else");
}

Value Interpreter::evaluate_subscript(const SubscriptExpr& expr) {
  const Value object = evaluate(expr.object);
  if (expr.index->kind != ExprKind::kSlice) {
    const Value index = evaluate(expr.index);
    rt_.line = expr.line;
    return get_item(rt_, object, index);
  }
  const auto& slice = as<SliceExpr>(expr.index);
  const auto part = [this](const Expr* node) {
    return node == nullptr ? Value::none() : evaluate(node);
  };
  SliceParts parts;
  parts.start = part(slice.start);
  parts.stop = part(slice.stop);
  parts.step = part(slice.step);
  rt_.line = expr.line;
  return get_slice(rt_, object, parts);
}

Value Interpreter::evaluate_call(const CallExpr& expr, const Value& caller) {
  Value self;
  const Builtin* method = nullptr;
  Value callee;
  if (expr.callee->kind == ExprKind::kAttribute) {
    // object.method(…) of a plain value needs no function object in between.
    const auto& attribute = as<AttributeExpr>(expr.callee);
    self = evaluate(attribute.object);
    rt_.line = attribute.line;
    if (self.is(Kind::kBlocks)) return call_block(attribute.name);
    const bool plain = self.is_string() || self.is(Kind::kDict) || self.is(Kind::kList);
    if (plain) method = find_method(self, attribute.name);
    if (method == nullptr) callee = get_attribute(rt_, self, attribute.name);
  } else {
    callee = evaluate(expr.callee);
  }
  CallBuffer buffer;
  evaluate_arguments(expr.args, buffer);
  if (!caller.missing()) buffer.add("caller", caller);
  rt_.line = expr.line;
  return method != nullptr ? call_builtin(rt_, *method, self, buffer.args())
                           : call(callee, buffer.args());
}

Value Interpreter::evaluate_filter(const FilterExpr& expr, const Value& block) {
  const Value input = expr.input == nullptr ? block : evaluate(expr.input);
  CallBuffer buffer;
  evaluate_arguments(expr.args, buffer);
  rt_.line = expr.line;
  if (expr.builtin == nullptr) {
    rt_.fail("there is no {} named '{}'", expr.kind == ExprKind::kFilter ? "filter" : "test",
             expr.name);
  }
  const Value result = call_builtin(rt_, *expr.builtin, input, buffer.args());
  return expr.kind == ExprKind::kFilter ? result : Value::boolean(truthy(result));
}

// Evaluates a chain of filters; the innermost one has no input but `block`.
Value Interpreter::evaluate_filters(const Expr* expr, const Value& block) {
  const Depth depth(*this);
  const auto& filter = as<FilterExpr>(expr);
  if (filter.input == nullptr) return evaluate_filter(filter, block);
  FilterExpr outer = filter;
  outer.input = nullptr;
  return evaluate_filter(outer, evaluate_filters(filter.input, block));
}

}  // namespace bl::jinja
