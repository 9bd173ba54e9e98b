#pragma once
// The parsed template. Nodes live in the template's arena and are only read after parsing, so that
// threads may render at the same time. `kind` says which struct a node is.

#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace bl::jinja {

using NameId = std::uint32_t;  // index into the template's table of names

enum class ExprKind : std::uint8_t {
  kConstant,
  kName,
  kTuple,
  kList,
  kDict,
  kUnary,
  kBinary,
  kLogical,
  kCompare,
  kConcat,
  kConditional,
  kAttribute,
  kSubscript,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  ExprKind kind;
  std::uint16_t height = 1;  // levels of nodes below this one, itself included
  std::uint32_t line = 1;
};
using ExprList = std::span<const Expr* const>;

struct ConstantExpr : Expr {
  Value value;
};
struct NameExpr : Expr {
  NameId name;
};
// Used for kTuple, kList and kConcat (the operator ~).
struct ListExpr : Expr {
  ExprList items;
};
struct DictItem {
  const Expr* key;
  const Expr* value;
};
struct DictExpr : Expr {
  std::span<const DictItem> items;
};
enum class UnaryOp : std::uint8_t { kNot, kNegate, kPlus };
struct UnaryExpr : Expr {
  UnaryOp op;
  const Expr* operand;
};
enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
struct BinaryExpr : Expr {
  BinaryOp op;
  const Expr* left;
  const Expr* right;
};
struct LogicalExpr : Expr {
  bool is_and;
  const Expr* left;
  const Expr* right;
};
enum class CompareOp : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct Comparison {
  CompareOp op;
  const Expr* right;
};
struct CompareExpr : Expr {
  const Expr* left;
  std::span<const Comparison> rest;
};
struct ConditionalExpr : Expr {
  const Expr* test;
  const Expr* then;
  const Expr* otherwise;  // null: undefined
};
struct AttributeExpr : Expr {
  const Expr* object;
  std::string_view name;
};
struct SubscriptExpr : Expr {
  const Expr* object;
  const Expr* index;
};
// A slice; each of its parts may be null.
struct SliceExpr : Expr {
  const Expr* start;
  const Expr* stop;
  const Expr* step;
};
struct KeywordItem {
  std::string_view name;
  const Expr* value;
};
struct CallItems {
  ExprList positional;
  std::span<const KeywordItem> keywords;
  const Expr* star = nullptr;         // *args
  const Expr* double_star = nullptr;  // **kwargs
};
struct CallExpr : Expr {
  const Expr* callee;
  CallItems args;
};
// A filter or a test. `builtin` is null for an unknown name, which is an error only when it is
// evaluated.
struct FilterExpr : Expr {
  const Expr* input;  // null in a filter block, whose text is the input
  const Builtin* builtin;
  std::string_view name;
  CallItems args;
};

enum class TargetKind : std::uint8_t { kName, kAttribute, kTuple };
struct Target {
  TargetKind kind = TargetKind::kName;
  NameId name = 0;
  std::string_view attribute;  // for kAttribute: `name.attribute`, where `name` is a namespace
  std::span<const Target> items;
};

enum class StatementKind : std::uint8_t {
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kWith,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kBlock,
  kScope,
  kAutoescape,
  kBreak,
  kContinue,
  kUnsupported,
};

// Facts about the variables of a scope (scope_analysis.h). It is made with the node and filled in
// when the tree is complete.
struct ScopeInfo {
  std::span<const NameId> unset;  // undefined when the scope begins, whatever is around it
};

struct Statement {
  StatementKind kind;
  std::uint32_t line = 1;
};
using Body = std::span<const Statement* const>;

struct TextStatement : Statement {
  std::string_view text;
};
struct OutputStatement : Statement {
  const Expr* value;
};
struct Branch {
  const Expr* test;  // null for else
  Body body;
};
struct IfStatement : Statement {
  std::span<const Branch> branches;
};
struct ForStatement : Statement {
  Target target;
  const Expr* iterable;
  const Expr* test;  // may be null
  bool recursive;
  Body body;
  Body otherwise;
  ScopeInfo* body_scope;
  ScopeInfo* test_scope;
  ScopeInfo* otherwise_scope;
};
struct SetStatement : Statement {
  Target target;
  const Expr* value;
};
struct SetBlockStatement : Statement {
  Target target;
  const Expr* filter;  // may be null; its innermost FilterExpr has no input
  Body body;
  ScopeInfo* scope;
};
struct WithItem {
  Target target;
  const Expr* value;
};
struct WithStatement : Statement {
  std::span<const WithItem> items;
  Body body;
  ScopeInfo* scope;
};
struct Parameter {
  NameId name;
  std::string_view text_name;
  const Expr* initial;  // the default value; may be null
};
struct MacroStatement : Statement {
  NameId name = 0;
  std::string_view text_name;
  std::span<const Parameter> parameters;
  bool takes_varargs = false;  // the body uses varargs
  bool takes_kwargs = false;   // the body uses kwargs
  bool takes_caller = false;   // the body uses caller
  Body body;
  ScopeInfo* scope = nullptr;
};
struct CallBlockStatement : Statement {
  const CallExpr* call;
  MacroStatement caller;
};
struct FilterBlockStatement : Statement {
  const Expr* filter;
  Body body;
  ScopeInfo* scope;
};
struct BlockStatement : Statement {
  std::string_view name;
  bool scoped;
  Body body;
  ScopeInfo* scope;
};
// {% generation %}, which is a scope of its own.
struct ScopeStatement : Statement {
  Body body;
  ScopeInfo* scope;
};
struct AutoescapeStatement : Statement {
  const Expr* on;
  Body body;
  ScopeInfo* scope;
};
// A well-formed statement that would need another template; executing it is an error.
struct UnsupportedStatement : Statement {
  std::string_view name;
};

// Casts a node to the struct that its `kind` names.
template <class Node, class Base>
const Node& as(const Base* base) {
  return *static_cast<const Node*>(base);
}

}  // namespace bl::jinja
