#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/jinja/builtin.h"
#include "text/jinja/from_json.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

constexpr int kMaxDepth = 2000;

}  // namespace

// Yields the items of a for statement that pass its `if`.
class Interpreter::ForSource final : public LoopSource {
 public:
  ForSource(Interpreter& interpreter, const ForStatement& statement, const Value& iterable)
      : interpreter_(interpreter),
        statement_(statement),
        iterable_(iterable),
        cursor_(interpreter.rt_, iterable),
        outer_(interpreter.scope_) {}

  bool next(Value& item) override {
    while (cursor_.next(item)) {
      if (statement_.test == nullptr) return true;
      if (test_scope_ == nullptr)
        test_scope_ = interpreter_.new_scope(outer_, *statement_.test_scope);
      renew(*test_scope_, *statement_.test_scope);
      const InScope in_scope(interpreter_, test_scope_);
      interpreter_.assign(statement_.target, item);
      if (truthy(interpreter_.evaluate(statement_.test))) return true;
    }
    return false;
  }

  std::optional<std::size_t> known_length() const override {
    return statement_.test == nullptr ? length_of(iterable_) : std::nullopt;
  }

 private:
  Interpreter& interpreter_;
  const ForStatement& statement_;
  Value iterable_;
  Cursor cursor_;
  Scope* outer_;
  Scope* test_scope_ = nullptr;
};

Interpreter::Depth::Depth(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ > kMaxDepth) {
    --interpreter_.depth_;
    interpreter_.rt_.limit("the template calls itself too deeply");
  }
}

Interpreter::Call::Call(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.calls_ > interpreter_.rt_.limits.max_calls) {
    --interpreter_.calls_;
    interpreter_.rt_.limit("there are more than {} calls of macros inside each other",
                           interpreter_.rt_.limits.max_calls);
  }
}

Value Interpreter::Capture::value() const {
  return interpreter_.rt_.string(text_).as_markup(interpreter_.rt_.autoescape);
}

Interpreter::Interpreter(const ParsedTemplate& parsed, Runtime& rt, const OrderedJson& variables)
    : parsed_(parsed), rt_(rt), variables_(parsed.names.size()) {
  for (std::size_t i = 0; i < parsed.names.size(); ++i) {
    const Builtin* global = find_global(parsed.names[i]);
    if (global == nullptr) continue;
    variables_[i].kind = Kind::kFunction;
    variables_[i].function = rt.arena.make<Function>(global, Value{});
  }
  for (const auto& [key, value] : variables.items()) {
    const auto id = parsed.name_ids.find(key);
    if (id != parsed.name_ids.end()) variables_[id->second] = from_json(rt, value);
  }
  if (!parsed.blocks.empty()) given_ = variables_;
  for (const NameId name : parsed.unset) variables_[name] = {};
  variables_[kNameSelf].kind = Kind::kBlocks;
}

std::string Interpreter::run() {
  execute(parsed_.body);
  return std::move(output_);
}

Scope* Interpreter::new_scope(Scope* parent, const ScopeInfo& info) {
  auto* scope = rt_.arena.make<Scope>(parent, std::pmr::vector<Binding>(&rt_.arena));
  renew(*scope, info);
  return scope;
}

void Interpreter::renew(Scope& scope, const ScopeInfo& info) {
  scope.bindings.clear();
  for (const NameId name : info.unset) scope.bindings.push_back({name, {}});
}

Value Interpreter::lookup(NameId name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const Binding& binding : scope->bindings) {
      if (binding.name != name) continue;
      return binding.value.missing() ? rt_.undefined_variable(parsed_.names[name]) : binding.value;
    }
  }
  const Value& value = in_block_ && variables_[name].missing() ? given_[name] : variables_[name];
  return value.missing() ? rt_.undefined_variable(parsed_.names[name]) : value;
}

void Interpreter::set_variable(NameId name, const Value& value) {
  if (scope_ == nullptr) {
    variables_[name] = value;
  } else {
    scope_->set(name, value);
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.kind == TargetKind::kName) {
    set_variable(target.name, value);
  } else if (target.kind == TargetKind::kAttribute) {
    const Value space = lookup(target.name);
    if (!space.is(Kind::kNamespace)) rt_.fail("cannot assign attribute on non-namespace object");
    space.space->set(target.attribute, value);
  } else {
    const auto items = items_of(rt_, value);
    if (items.size() != target.items.size()) {
      rt_.fail("{} values to unpack (expected {})",
               items.size() > target.items.size() ? "too many" : "not enough", target.items.size());
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
  }
}

void Interpreter::check_target(const Target& target) {
  for (const Target& item : target.items) check_target(item);
  if (target.kind == TargetKind::kAttribute && !lookup(target.name).is(Kind::kNamespace)) {
    rt_.fail("cannot assign attribute on non-namespace object");
  }
}

void Interpreter::write(std::string_view text) {
  rt_.check_size(out_->size() + text.size());
  *out_ += text;
}

void Interpreter::write(const Value& value) {
  if (rt_.autoescape) {
    write(escape_html(rt_, value).str());
  } else {
    append_str(rt_, value, *out_);
  }
}

Interpreter::Flow Interpreter::execute(Body body) {
  const Depth depth(*this);
  for (const Statement* statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  rt_.step();
  rt_.line = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      write(as<TextStatement>(&statement).text);
      return Flow::kNormal;
    case StatementKind::kOutput:
      write(evaluate(as<OutputStatement>(&statement).value));
      return Flow::kNormal;
    case StatementKind::kIf:
      return execute_if(as<IfStatement>(&statement));
    case StatementKind::kFor: {
      const auto& loop = as<ForStatement>(&statement);
      return execute_for(loop, evaluate(loop.iterable), 0);
    }
    case StatementKind::kSet: {
      const auto& set = as<SetStatement>(&statement);
      check_target(set.target);
      assign(set.target, evaluate(set.value));
      return Flow::kNormal;
    }
    case StatementKind::kSetBlock:
      return execute_set_block(as<SetBlockStatement>(&statement));
    case StatementKind::kWith:
      return execute_with(as<WithStatement>(&statement));
    case StatementKind::kMacro: {
      const auto& macro = as<MacroStatement>(&statement);
      set_variable(macro.name, make_macro(macro));
      return Flow::kNormal;
    }
    case StatementKind::kCallBlock:
      execute_call_block(as<CallBlockStatement>(&statement));
      return Flow::kNormal;
    case StatementKind::kFilterBlock:
      return execute_filter_block(as<FilterBlockStatement>(&statement));
    case StatementKind::kBlock:
      execute_block(as<BlockStatement>(&statement));
      return Flow::kNormal;
    case StatementKind::kScope:
      return execute_scope(*as<ScopeStatement>(&statement).scope,
                           as<ScopeStatement>(&statement).body);
    case StatementKind::kAutoescape:
      return execute_autoescape(as<AutoescapeStatement>(&statement));
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kUnsupported:
      rt_.fail("{{% {} %}} needs another template, and templates are never loaded here",
               as<UnsupportedStatement>(&statement).name);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_if(const IfStatement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.test == nullptr || truthy(evaluate(branch.test))) return execute(branch.body);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_for(const ForStatement& statement, const Value& iterable,
                                           std::int64_t depth0) {
  ForSource source(*this, statement, iterable);
  auto* loop = rt_.arena.make<Loop>(rt_, &source, &statement, scope_, depth0);
  const bool completed = execute_loop(*loop);
  loop->over = true;
  // As in jinja2, `else` also runs if every item was left by break or continue.
  if (completed || statement.otherwise.empty()) return Flow::kNormal;
  return execute_scope(*statement.otherwise_scope, statement.otherwise);
}

bool Interpreter::execute_loop(Loop& loop) {
  const ForStatement& statement = *loop.statement;
  Scope* scope = new_scope(scope_, *statement.body_scope);
  Value self;
  self.kind = Kind::kLoop;
  self.loop = &loop;
  bool completed = false;
  while (loop.advance()) {
    renew(*scope, *statement.body_scope);
    const InScope in_scope(*this, scope);
    scope->set(kNameLoop, self);
    assign(statement.target, loop.current);
    const Flow flow = execute(statement.body);
    completed = completed || flow == Flow::kNormal;
    if (flow == Flow::kBreak) break;
  }
  return completed;
}

Interpreter::Flow Interpreter::execute_scope(const ScopeInfo& info, Body body) {
  const InScope in_scope(*this, new_scope(scope_, info));
  return execute(body);
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlockStatement& statement) {
  Value text;
  {
    const InScope in_scope(*this, new_scope(scope_, *statement.scope));
    {
      const Capture capture(*this);
      const Flow flow = execute(statement.body);
      if (flow != Flow::kNormal) return flow;
      text = capture.value();
    }
    if (statement.filter != nullptr) text = evaluate_filters(statement.filter, text);
  }
  assign(statement.target, text);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_with(const WithStatement& statement) {
  Scope* scope = new_scope(scope_, *statement.scope);
  for (const WithItem& item : statement.items) {
    const Value value = evaluate(item.value);
    const InScope in_scope(*this, scope);
    assign(item.target, value);
  }
  const InScope in_scope(*this, scope);
  return execute(statement.body);
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlockStatement& statement) {
  const InScope in_scope(*this, new_scope(scope_, *statement.scope));
  Value text;
  {
    const Capture capture(*this);
    const Flow flow = execute(statement.body);
    if (flow != Flow::kNormal) return flow;
    text = capture.value();
  }
  write(evaluate_filters(statement.filter, text));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute_autoescape(const AutoescapeStatement& statement) {
  const InScope in_scope(*this, new_scope(scope_, *statement.scope));
  const bool before = rt_.autoescape;
  rt_.autoescape = truthy(evaluate(statement.on));
  const Flow flow = execute(statement.body);
  rt_.autoescape = before;
  return flow;
}

void Interpreter::execute_call_block(const CallBlockStatement& statement) {
  write(evaluate_call(*statement.call, make_macro(statement.caller)));
}

void Interpreter::execute_block(const BlockStatement& statement) {
  const Call call(*this);
  const InScope in_scope(*this, new_scope(statement.scoped ? scope_ : nullptr, *statement.scope));
  const bool outer = std::exchange(in_block_, true);
  execute(statement.body);
  in_block_ = outer;
}

}  // namespace bl::jinja
