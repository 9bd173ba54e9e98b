#include <algorithm>
#include <utility>

#include "base/error.h"
#include "grammar/value_table.h"
#include "grammar/work_budget.h"

namespace bl {
namespace {

using Id = Expressions::Id;
using ExpressionKind = Expressions::Kind;

constexpr std::size_t kMostAlternatives = 256;
constexpr std::size_t kMostMerges = 200000;

class Expander {
 public:
  Expander(Expressions& expressions, const AlternativeRules& rules)
      : expressions_(expressions), rules_(rules) {}

  std::vector<Alternative> run(Id id, bool holds) {
    const Expressions::Node node = expressions_.node(id);
    switch (node.kind) {
      case ExpressionKind::kFalse:
      case ExpressionKind::kTrue:
        if ((node.kind == ExpressionKind::kTrue) == holds) return {Alternative{}};
        return {};
      case ExpressionKind::kAtom:
        return of_atom(id, node.atom, holds);
      case ExpressionKind::kNot:
        return run(node.parts[0], !holds);
      case ExpressionKind::kAnd:
      case ExpressionKind::kOr:
        return (node.kind == ExpressionKind::kAnd) == holds ? of_all(node.parts, holds)
                                                            : of_any(node.parts, holds);
      case ExpressionKind::kOne:
        return of_one(node.parts, holds);
    }
    return {};
  }

 private:
  std::vector<Alternative> of_atom(Id id, int atom, bool holds) {
    if (holds) return {{{atom, true}}};
    const Id negation = rules_.negation(atom);
    const Expressions::Node& node = expressions_.node(negation);
    // Some atoms stand for their own negation.
    if (node.kind == ExpressionKind::kNot &&
        expressions_.node(node.parts[0]).kind == ExpressionKind::kAtom && node.parts[0] == id) {
      return {{{atom, false}}};
    }
    if (node.kind == ExpressionKind::kNot && expressions_.node(node.parts[0]).atom == atom) {
      return {{{atom, false}}};
    }
    return run(negation, true);
  }

  std::vector<Alternative> of_all(const std::vector<Id>& parts, bool holds) {
    std::vector<Alternative> result{Alternative{}};
    for (const Id part : parts) {
      const std::vector<Alternative> next = run(part, holds);
      std::vector<Alternative> merged;
      for (const Alternative& a : result) {
        for (const Alternative& b : next) {
          if (++merges_ > kMostMerges) too_many();
          spend_work(10 * (a.size() + b.size()) + 10);
          Alternative both = a;
          for (const SignedAtom& atom : b) {
            if (std::find(both.begin(), both.end(), atom) == both.end()) both.push_back(atom);
          }
          merged.push_back(std::move(both));
        }
      }
      result = std::move(merged);
      if (next.size() > 1 && result.size() > 1) keep_possible(result);
    }
    return result;
  }

  std::vector<Alternative> of_any(const std::vector<Id>& parts, bool holds) {
    std::vector<Alternative> result;
    for (const Id part : parts) {
      std::vector<Alternative> next = run(part, holds);
      result.insert(result.end(), next.begin(), next.end());
    }
    if (result.size() > 32) keep_possible(result);
    return result;
  }

  std::vector<Alternative> of_one(const std::vector<Id>& parts, bool holds) {
    std::vector<std::vector<Alternative>> each;
    if (!holds) {
      std::vector<Id> cases{expressions_.negated(expressions_.any_of(parts))};
      for (std::size_t i = 0; i < parts.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          cases.push_back(expressions_.all_of({parts[j], parts[i]}));
        }
      }
      return of_any(cases, true);
    }
    std::vector<Alternative> result;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::vector<Id> claims{parts[i]};
      for (std::size_t j = 0; j < parts.size(); ++j) {
        if (i != j && !disjoint(parts[i], parts[j])) {
          claims.push_back(expressions_.negated(parts[j]));
        }
      }
      std::vector<Alternative> next = of_all(claims, true);
      result.insert(result.end(), next.begin(), next.end());
    }
    keep_possible(result);
    return result;
  }

  bool disjoint(Id a, Id b) {
    std::vector<Alternative> both = of_all({a, b}, true);
    keep_possible(both);
    return both.empty();
  }

  void keep_possible(std::vector<Alternative>& all) {
    std::erase_if(all, [&](const Alternative& one) { return !rules_.is_possible(one); });
    if (all.size() > kMostAlternatives) too_many();
  }

  [[noreturn]] static void too_many() {
    fail(ErrorCode::kLimit,
         "combines anyOf, oneOf, not and if in more than {} ways, which is not supported",
         kMostAlternatives);
  }

  Expressions& expressions_;
  const AlternativeRules& rules_;
  std::size_t merges_ = 0;
};

}  // namespace

std::vector<Alternative> alternatives(Expressions& expressions, Expressions::Id id,
                                      const AlternativeRules& rules) {
  std::vector<Alternative> all = Expander(expressions, rules).run(id, true);
  std::erase_if(all, [&](const Alternative& one) { return !rules.is_possible(one); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = all.size(); j-- > i + 1;) {
      Alternative a = all[i];
      Alternative b = all[j];
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      if (a == b) all.erase(all.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
  if (all.size() > kMostAlternatives) {
    fail(ErrorCode::kLimit,
         "allows an array or object in more than {} ways, which is not supported",
         kMostAlternatives);
  }
  return all;
}

}  // namespace bl
