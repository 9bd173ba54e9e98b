#include <algorithm>
#include <utility>

#include "text/jinja/builtin.h"
#include "text/jinja/dict.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_layout.h"

namespace bl::jinja {

void CallBuffer::add(const Value& value) {
  if (count_ < kInline) {
    first_[count_++] = value;
    return;
  }
  if (count_ == kInline) many_.assign(first_, first_ + kInline);
  many_.push_back(value);
  ++count_;
}

void CallBuffer::add(std::string_view name, const Value& value) {
  keywords_.push_back({name, value});
}

CallArgs CallBuffer::args() const {
  const Value* all = count_ <= kInline ? first_ : many_.data();
  return {{all, count_}, keywords_};
}

bool CallBuffer::has_keyword(std::string_view name) const {
  return std::any_of(keywords_.begin(), keywords_.end(),
                     [name](const Keyword& keyword) { return keyword.name == name; });
}

void Interpreter::evaluate_arguments(const CallItems& items, CallBuffer& buffer) {
  for (const Expr* item : items.positional) buffer.add(evaluate(item));
  const auto add_keyword = [&](std::string_view name, const Value& value) {
    if (buffer.has_keyword(name)) rt_.fail("got multiple values for keyword argument '{}'", name);
    rt_.step();
    buffer.add(name, value);
  };
  for (const KeywordItem& item : items.keywords) add_keyword(item.name, evaluate(item.value));
  if (items.star != nullptr) {
    const Value star = evaluate(items.star);
    Cursor cursor(rt_, star);
    for (Value item; cursor.next(item);) buffer.add(item);
  }
  if (items.double_star != nullptr) {
    const Value star = evaluate(items.double_star);
    if (!star.is(Kind::kDict)) rt_.fail("the argument after ** must be a mapping");
    for (const DictEntry& entry : star.dict->list()) {
      if (!entry.key.is_string()) rt_.fail("keywords must be strings");
      add_keyword(entry.key.str(), entry.value);
    }
  }
}

Value Interpreter::call(const Value& callee, const CallArgs& args) {
  const Depth depth(*this);
  switch (callee.kind) {
    case Kind::kFunction:
      return call_builtin(rt_, *callee.function->builtin, callee.function->self, args);
    case Kind::kMacro:
      return call_macro(*callee.macro, args);
    case Kind::kLoop:
      return call_loop(*callee.loop, args);
    case Kind::kJoiner: {
      Joiner& joiner = *callee.joiner;
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return Value::string("");
    }
    case Kind::kUndefined:
      fail_undefined(rt_, callee);
    default:
      rt_.fail("'{}' object is not callable", type_name(callee));
  }
}

Value Interpreter::make_macro(const MacroStatement& definition) {
  Value value;
  value.kind = Kind::kMacro;
  value.macro = rt_.arena.make<Macro>(&definition, scope_);
  return value;
}

void Interpreter::bind_parameters(const MacroStatement& macro, const CallArgs& args, Scope* scope) {
  std::vector<bool> used(args.keywords.size());
  const auto take = [&](std::string_view name) -> Value {
    for (std::size_t i = 0; i < args.keywords.size(); ++i) {
      if (args.keywords[i].name != name || used[i]) continue;
      used[i] = true;
      return args.keywords[i].value;
    }
    return {};
  };
  bool has_caller_parameter = false;
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    has_caller_parameter = has_caller_parameter || parameter.name == kNameCaller;
    scope->set(parameter.name,
               i < args.positional.size() ? args.positional[i] : take(parameter.text_name));
  }
  if (macro.takes_caller && !has_caller_parameter) {
    const Value caller = take("caller");
    scope->set(kNameCaller, caller.missing() ? rt_.undefined("No caller defined") : caller);
  }
  std::vector<Keyword> rest;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) rest.push_back(args.keywords[i]);
  }
  if (macro.takes_kwargs) {
    scope->set(kNameKwargs, keywords_as_dict(rt_, rest));
  } else if (!rest.empty()) {
    rt_.fail("macro '{}' takes no keyword argument '{}'", macro.text_name, rest[0].name);
  }
  const std::size_t taken = std::min(macro.parameters.size(), args.positional.size());
  if (macro.takes_varargs) {
    scope->set(kNameVarargs, rt_.tuple(rt_.copy(args.positional.subspan(taken))));
  } else if (taken < args.positional.size()) {
    rt_.fail("macro '{}' takes not more than {} argument(s)", macro.text_name,
             macro.parameters.size());
  }
}

// Defaults are evaluated in order, after all given arguments are in place, because a default may
// use the other parameters.
void Interpreter::fill_defaults(const MacroStatement& macro, Scope* scope) {
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (!scope->bindings[macro.scope->unset.size() + i].value.missing()) continue;
    scope->set(parameter.name, parameter.initial != nullptr
                                   ? evaluate(parameter.initial)
                                   : rt_.undefined(rt_.arena.copy(fmt::format(
                                         "parameter '{}' was not provided", parameter.text_name))));
  }
}

Value Interpreter::call_macro(const Macro& macro, const CallArgs& args) {
  const Call call(*this);
  Scope* scope = new_scope(macro.scope, *macro.definition->scope);
  const InScope in_scope(*this, scope);
  bind_parameters(*macro.definition, args, scope);
  fill_defaults(*macro.definition, scope);
  const bool outer = std::exchange(in_block_, false);
  const Capture capture(*this);
  execute(macro.definition->body);
  in_block_ = outer;
  return capture.value();
}

// self.name()
Value Interpreter::call_block(std::string_view name) {
  const auto found = parsed_.blocks.find(name);
  if (found == parsed_.blocks.end()) rt_.fail("there is no block named '{}'", name);
  const Capture capture(*this);
  execute_block(*found->second);
  return capture.value();
}

Value Interpreter::call_loop(Loop& loop, const CallArgs& args) {
  if (!loop.statement->recursive) {
    rt_.fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.positional.size() != 1 || !args.keywords.empty()) {
    rt_.fail("loop() takes one argument, the items to walk");
  }
  const Call call(*this);
  const InScope in_scope(*this, loop.scope);
  const Capture capture(*this);
  execute_for(*loop.statement, args.positional[0], loop.depth0 + 1);
  return capture.value();
}

}  // namespace bl::jinja
