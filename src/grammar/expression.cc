#include "grammar/expression.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace bl {

using Id = Expressions::Id;

Expressions::Expressions() {
  nodes_.push_back({.kind = Kind::kFalse});
  nodes_.push_back({.kind = Kind::kTrue});
}

Id Expressions::add(Node node) {
  constexpr std::size_t kMost = 1000000;
  if (nodes_.size() >= kMost) {
    fail(ErrorCode::kLimit, "the JSON schema has too many parts; make it smaller");
  }
  nodes_.push_back(std::move(node));
  return static_cast<Id>(nodes_.size()) - 1;
}

Id Expressions::atom(int number) { return add({.kind = Kind::kAtom, .atom = number}); }

Id Expressions::negated(Id part) {
  if (part == kFalse) return kTrue;
  if (part == kTrue) return kFalse;
  if (node(part).kind == Kind::kNot) return node(part).parts[0];
  return add({.kind = Kind::kNot, .parts = {part}});
}

Id Expressions::all_of(std::vector<Id> parts) {
  if (std::find(parts.begin(), parts.end(), kFalse) != parts.end()) return kFalse;
  std::erase(parts, kTrue);
  if (parts.empty()) return kTrue;
  return parts.size() == 1 ? parts[0] : add({.kind = Kind::kAnd, .parts = std::move(parts)});
}

Id Expressions::any_of(std::vector<Id> parts) {
  if (std::find(parts.begin(), parts.end(), kTrue) != parts.end()) return kTrue;
  std::erase(parts, kFalse);
  if (parts.empty()) return kFalse;
  return parts.size() == 1 ? parts[0] : add({.kind = Kind::kOr, .parts = std::move(parts)});
}

Id Expressions::one_of(std::vector<Id> parts) {
  std::erase(parts, kFalse);
  const auto certain = std::count(parts.begin(), parts.end(), kTrue);
  if (parts.empty() || certain > 1) return kFalse;
  if (certain == 1) {
    std::erase(parts, kTrue);
    return negated(any_of(std::move(parts)));
  }
  return parts.size() == 1 ? parts[0] : add({.kind = Kind::kOne, .parts = std::move(parts)});
}

std::vector<int> Expressions::atoms(Id id) const {
  std::vector<int> found;
  std::vector<Id> open{id};
  std::vector<bool> seen(nodes_.size());
  while (!open.empty()) {
    const Id at = open.back();
    open.pop_back();
    if (seen[static_cast<std::size_t>(at)]) continue;
    seen[static_cast<std::size_t>(at)] = true;
    if (node(at).kind == Kind::kAtom) found.push_back(node(at).atom);
    open.insert(open.end(), node(at).parts.begin(), node(at).parts.end());
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

namespace {

class Judge {
 public:
  Judge(const Expressions& all, const std::function<bool(int)>& atom_holds)
      : all_(all), atom_holds_(atom_holds) {}

  bool holds(Id id) {
    if (const auto found = known_.find(id); found != known_.end()) return found->second;
    const bool value = judge(all_.node(id));
    known_[id] = value;
    return value;
  }

 private:
  bool judge(const Expressions::Node& node) {
    using Kind = Expressions::Kind;
    const auto part_holds = [&](Id part) { return holds(part); };
    switch (node.kind) {
      case Kind::kFalse:
        return false;
      case Kind::kTrue:
        return true;
      case Kind::kAtom:
        return atom_holds_(node.atom);
      case Kind::kNot:
        return !holds(node.parts[0]);
      case Kind::kAnd:
        return std::all_of(node.parts.begin(), node.parts.end(), part_holds);
      case Kind::kOr:
        return std::any_of(node.parts.begin(), node.parts.end(), part_holds);
      case Kind::kOne:
        return std::count_if(node.parts.begin(), node.parts.end(), part_holds) == 1;
    }
    return false;
  }

  const Expressions& all_;
  const std::function<bool(int)>& atom_holds_;
  std::unordered_map<Id, bool> known_;
};

}  // namespace

bool Expressions::holds(Id id, const std::function<bool(int)>& atom_holds) const {
  return Judge(*this, atom_holds).holds(id);
}

}  // namespace bl
