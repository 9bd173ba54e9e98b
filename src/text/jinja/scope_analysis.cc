#include "text/jinja/scope_analysis.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace bl::jinja {
namespace {

enum class Origin : std::uint8_t {
  kOuter,      // the caller's variable, or one of a scope around
  kParameter,  // always set when the scope begins
  kFresh,      // unset when the scope begins
};

struct Frame {
  const Frame* parent = nullptr;
  std::unordered_map<NameId, Origin> names;
  std::unordered_set<NameId> stores;
  std::vector<NameId> stored;  // the elements of `stores` in order

  bool knows(NameId name) const {
    for (const Frame* frame = this; frame != nullptr; frame = frame->parent) {
      if (frame->names.count(name) > 0) return true;
    }
    return false;
  }
  void load(NameId name) {
    if (!knows(name)) names[name] = Origin::kOuter;
  }
  void declare(NameId name) {
    stores.insert(name);
    names[name] = Origin::kParameter;
  }
  void store(NameId name) {
    if (stores.insert(name).second) stored.push_back(name);
    if (names.count(name) > 0) return;
    names[name] = parent != nullptr && parent->knows(name) ? Origin::kOuter : Origin::kFresh;
  }
};

// Finds the variables of one scope, and then those of the scopes inside it.
class ScopeAnalyzer {
 public:
  ScopeAnalyzer(Arena& arena, const Frame* parent) : arena_(arena) { frame_.parent = parent; }

  Frame& frame() { return frame_; }

  void load(const Expr* expr) {
    if (expr == nullptr) return;
    switch (expr->kind) {
      case ExprKind::kConstant:
        break;
      case ExprKind::kName:
        frame_.load(as<NameExpr>(expr).name);
        break;
      case ExprKind::kTuple:
      case ExprKind::kList:
      case ExprKind::kConcat:
        for (const Expr* item : as<ListExpr>(expr).items) load(item);
        break;
      case ExprKind::kDict:
        for (const DictItem& item : as<DictExpr>(expr).items) {
          load(item.key);
          load(item.value);
        }
        break;
      case ExprKind::kUnary:
        load(as<UnaryExpr>(expr).operand);
        break;
      case ExprKind::kBinary:
        load(as<BinaryExpr>(expr).left);
        load(as<BinaryExpr>(expr).right);
        break;
      case ExprKind::kLogical:
        load(as<LogicalExpr>(expr).left);
        load(as<LogicalExpr>(expr).right);
        break;
      default:
        load_compound(expr);
    }
  }

  void visit(Body body) {
    for (const Statement* statement : body) visit(*statement);
  }

  void declare(const Target& target) {
    if (target.kind == TargetKind::kName) frame_.declare(target.name);
    for (const Target& item : target.items) declare(item);
  }

  // Call it after everything in the scope was visited. Analyzes the scopes inside, and returns the
  // names that are unset when this scope begins.
  std::span<const NameId> finish() {
    std::vector<NameId> fresh;
    for (const auto& [name, origin] : frame_.names) {
      if (origin == Origin::kFresh) fresh.push_back(name);
    }
    std::sort(fresh.begin(), fresh.end());
    auto* names = arena_.array<NameId>(fresh.size());
    std::copy(fresh.begin(), fresh.end(), names);
    for (const Statement* statement : inner_) enter(*statement);
    return {names, fresh.size()};
  }

 private:
  void load_compound(const Expr* expr) {
    switch (expr->kind) {
      case ExprKind::kCompare:
        load(as<CompareExpr>(expr).left);
        for (const Comparison& rest : as<CompareExpr>(expr).rest) load(rest.right);
        break;
      case ExprKind::kConditional:
        load(as<ConditionalExpr>(expr).test);
        load(as<ConditionalExpr>(expr).then);
        load(as<ConditionalExpr>(expr).otherwise);
        break;
      case ExprKind::kAttribute:
        load(as<AttributeExpr>(expr).object);
        break;
      case ExprKind::kSubscript:
        load(as<SubscriptExpr>(expr).object);
        load(as<SubscriptExpr>(expr).index);
        break;
      case ExprKind::kSlice:
        load(as<SliceExpr>(expr).start);
        load(as<SliceExpr>(expr).stop);
        load(as<SliceExpr>(expr).step);
        break;
      case ExprKind::kCall:
        load(as<CallExpr>(expr).callee);
        load(as<CallExpr>(expr).args);
        break;
      default:  // kFilter, kTest
        load(as<FilterExpr>(expr).input);
        load(as<FilterExpr>(expr).args);
    }
  }

  void load(const CallItems& items) {
    for (const Expr* item : items.positional) load(item);
    for (const KeywordItem& item : items.keywords) load(item.value);
    load(items.star);
    load(items.double_star);
  }

  void store(const Target& target) {
    if (target.kind == TargetKind::kName) frame_.store(target.name);
    if (target.kind == TargetKind::kAttribute) frame_.load(target.name);
    for (const Target& item : target.items) store(item);
  }

  void visit(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kOutput:
        load(as<OutputStatement>(&statement).value);
        break;
      case StatementKind::kIf:
        visit_if(as<IfStatement>(&statement));
        break;
      case StatementKind::kFor:
        load(as<ForStatement>(&statement).iterable);
        inner_.push_back(&statement);
        break;
      case StatementKind::kSet:
        load(as<SetStatement>(&statement).value);
        store(as<SetStatement>(&statement).target);
        break;
      case StatementKind::kSetBlock:
        store(as<SetBlockStatement>(&statement).target);
        inner_.push_back(&statement);
        break;
      case StatementKind::kWith:
        for (const WithItem& item : as<WithStatement>(&statement).items) load(item.value);
        inner_.push_back(&statement);
        break;
      case StatementKind::kMacro:
        frame_.store(as<MacroStatement>(&statement).name);
        inner_.push_back(&statement);
        break;
      case StatementKind::kCallBlock:
        load(as<CallBlockStatement>(&statement).call);
        inner_.push_back(&statement);
        break;
      case StatementKind::kFilterBlock:
        load(as<FilterBlockStatement>(&statement).filter);
        inner_.push_back(&statement);
        break;
      case StatementKind::kBlock:
      case StatementKind::kScope:
      case StatementKind::kAutoescape:
        inner_.push_back(&statement);
        break;
      default:
        break;
    }
  }

  // A name that is assigned only in a branch keeps its outer value until then.
  void visit_if(const IfStatement& statement) {
    const std::size_t before = frame_.stored.size();
    for (const Branch& branch : statement.branches) {
      load(branch.test);
      visit(branch.body);
    }
    for (std::size_t i = before; i < frame_.stored.size(); ++i) {
      Origin& origin = frame_.names[frame_.stored[i]];
      if (origin == Origin::kFresh) origin = Origin::kOuter;
    }
  }

  void analyze(ScopeInfo* info, const Frame* parent, const auto& visit_scope) {
    ScopeAnalyzer inner(arena_, parent);
    visit_scope(inner);
    info->unset = inner.finish();
  }

  void enter_macro(const MacroStatement& macro) {
    analyze(macro.scope, &frame_, [&macro](ScopeAnalyzer& inner) {
      for (const Parameter& parameter : macro.parameters) inner.frame().declare(parameter.name);
      if (macro.takes_caller) inner.frame().declare(kNameCaller);
      if (macro.takes_kwargs) inner.frame().declare(kNameKwargs);
      if (macro.takes_varargs) inner.frame().declare(kNameVarargs);
      for (const Parameter& parameter : macro.parameters) inner.load(parameter.initial);
      inner.visit(macro.body);
    });
  }

  void enter_for(const ForStatement& loop) {
    analyze(loop.body_scope, &frame_, [&loop](ScopeAnalyzer& inner) {
      inner.frame().declare(kNameLoop);
      inner.declare(loop.target);
      inner.visit(loop.body);
    });
    analyze(loop.test_scope, &frame_, [&loop](ScopeAnalyzer& inner) {
      inner.declare(loop.target);
      inner.load(loop.test);
    });
    analyze(loop.otherwise_scope, &frame_,
            [&loop](ScopeAnalyzer& inner) { inner.visit(loop.otherwise); });
  }

  void enter(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kFor:
        return enter_for(as<ForStatement>(&statement));
      case StatementKind::kMacro:
        return enter_macro(as<MacroStatement>(&statement));
      case StatementKind::kCallBlock:
        return enter_macro(as<CallBlockStatement>(&statement).caller);
      case StatementKind::kSetBlock: {
        const auto& set = as<SetBlockStatement>(&statement);
        return analyze(set.scope, &frame_, [&set](ScopeAnalyzer& inner) {
          inner.visit(set.body);
          inner.load(set.filter);
        });
      }
      case StatementKind::kWith: {
        const auto& with = as<WithStatement>(&statement);
        return analyze(with.scope, &frame_, [&with](ScopeAnalyzer& inner) {
          for (const WithItem& item : with.items) inner.declare(item.target);
          inner.visit(with.body);
        });
      }
      case StatementKind::kFilterBlock: {
        const auto& filter = as<FilterBlockStatement>(&statement);
        return analyze(filter.scope, &frame_, [&filter](ScopeAnalyzer& inner) {
          inner.visit(filter.body);
          inner.load(filter.filter);
        });
      }
      case StatementKind::kAutoescape: {
        const auto& escape = as<AutoescapeStatement>(&statement);
        return analyze(escape.scope, &frame_, [&escape](ScopeAnalyzer& inner) {
          inner.load(escape.on);
          inner.visit(escape.body);
        });
      }
      case StatementKind::kBlock: {
        const auto& block = as<BlockStatement>(&statement);
        return analyze(block.scope, block.scoped ? &frame_ : nullptr,
                       [&block](ScopeAnalyzer& inner) { inner.visit(block.body); });
      }
      default: {
        const auto& scope = as<ScopeStatement>(&statement);
        return analyze(scope.scope, &frame_,
                       [&scope](ScopeAnalyzer& inner) { inner.visit(scope.body); });
      }
    }
  }

  Arena& arena_;
  Frame frame_;
  std::vector<const Statement*> inner_;
};

}  // namespace

void analyze_scopes(ParsedTemplate& parsed, Arena& arena) {
  ScopeAnalyzer root(arena, nullptr);
  root.visit(parsed.body);
  parsed.unset = root.finish();
}

}  // namespace bl::jinja
