#pragma once
// Runs a parsed template by walking over its tree.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "text/jinja/ast.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"
#include "text/jinja/scope.h"

namespace bl::jinja {

// The evaluated arguments of one call. A few of them need no allocation.
class CallBuffer {
 public:
  void add(const Value& value);
  void add(std::string_view name, const Value& value);
  CallArgs args() const;
  bool has_keyword(std::string_view name) const;

 private:
  static constexpr std::size_t kInline = 4;
  Value first_[kInline];
  std::size_t count_ = 0;
  std::vector<Value> many_;  // all arguments, once there are more than kInline
  std::vector<Keyword> keywords_;
};

class Interpreter {
 public:
  // `variables` is an object that must outlive the interpreter.
  Interpreter(const ParsedTemplate& parsed, Runtime& rt, const OrderedJson& variables);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders the template and returns the text.
  std::string run();

 private:
  enum class Flow : std::uint8_t { kNormal, kBreak, kContinue };
  class ForSource;
  friend class ForSource;

  // Bounds the recursion over expressions and statements together, while it lives.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter);
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --interpreter_.depth_; }

   private:
    Interpreter& interpreter_;
  };
  // Counts a call of the template's own code (macro, recursive loop, block) while it lives.
  class Call {
   public:
    explicit Call(Interpreter& interpreter);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { --interpreter_.calls_; }

   private:
    Interpreter& interpreter_;
  };
  // Makes `scope` the current scope while it lives.
  class InScope {
   public:
    InScope(Interpreter& interpreter, Scope* scope)
        : interpreter_(interpreter), outer_(interpreter.scope_) {
      interpreter.scope_ = scope;
    }
    InScope(const InScope&) = delete;
    InScope& operator=(const InScope&) = delete;
    ~InScope() { interpreter_.scope_ = outer_; }

   private:
    Interpreter& interpreter_;
    Scope* outer_;
  };
  // Sends output to a text of its own while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), outer_(interpreter.out_) {
      interpreter.out_ = &text_;
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() { interpreter_.out_ = outer_; }
    Value value() const;

   private:
    Interpreter& interpreter_;
    std::string* outer_;
    std::string text_;
  };

  Scope* new_scope(Scope* parent, const ScopeInfo& info);
  // Empties a scope for the next item of a loop.
  static void renew(Scope& scope, const ScopeInfo& info);
  Value lookup(NameId name);
  void set_variable(NameId name, const Value& value);
  void assign(const Target& target, const Value& value);
  // Throws if the target is an attribute of something that is not a namespace.
  void check_target(const Target& target);

  // --- statements ---
  Flow execute(Body body);
  Flow execute(const Statement& statement);
  Flow execute_if(const IfStatement& statement);
  Flow execute_for(const ForStatement& statement, const Value& iterable, std::int64_t depth0);
  // Returns whether the body ran to its end for any item.
  bool execute_loop(Loop& loop);
  Flow execute_set_block(const SetBlockStatement& statement);
  Flow execute_with(const WithStatement& statement);
  Flow execute_scope(const ScopeInfo& info, Body body);
  Flow execute_filter_block(const FilterBlockStatement& statement);
  Flow execute_autoescape(const AutoescapeStatement& statement);
  void execute_call_block(const CallBlockStatement& statement);
  void execute_block(const BlockStatement& statement);
  void write(std::string_view text);
  void write(const Value& value);

  // --- expressions ---
  Value evaluate(const Expr* expr);
  Value evaluate_dict(const DictExpr& expr);
  Value evaluate_list(const ListExpr& expr);
  Value evaluate_concat(const ListExpr& expr);
  Value evaluate_compare(const CompareExpr& expr);
  Value evaluate_conditional(const ConditionalExpr& expr);
  Value evaluate_subscript(const SubscriptExpr& expr);
  Value evaluate_call(const CallExpr& expr, const Value& caller);
  // `block` is the input of a filter that has no input of its own.
  Value evaluate_filter(const FilterExpr& expr, const Value& block);
  Value evaluate_filters(const Expr* expr, const Value& block);
  void evaluate_arguments(const CallItems& items, CallBuffer& buffer);

  // --- calls ---
  Value call(const Value& callee, const CallArgs& args);
  Value call_macro(const Macro& macro, const CallArgs& args);
  void bind_parameters(const MacroStatement& macro, const CallArgs& args, Scope* scope);
  void fill_defaults(const MacroStatement& macro, Scope* scope);
  Value call_loop(Loop& loop, const CallArgs& args);
  Value call_block(std::string_view name);
  Value make_macro(const MacroStatement& definition);

  const ParsedTemplate& parsed_;
  Runtime& rt_;
  std::vector<Value> variables_;  // by NameId; kMissing if not set
  Scope* scope_ = nullptr;        // null while in the template's own variables
  // The caller's variables, which blocks see even where the template's own are not set yet.
  std::vector<Value> given_;
  bool in_block_ = false;
  std::string output_;
  std::string* out_ = &output_;
  int depth_ = 0;
  int calls_ = 0;
};

}  // namespace bl::jinja
