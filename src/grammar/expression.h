#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace bl {

// Propositions about one value: atoms (numbered by whoever makes them) and how they are combined.
// They form a graph without circles, in which equal parts can be shared.
class Expressions {
 public:
  using Id = int;
  enum class Kind { kFalse, kTrue, kAtom, kNot, kAnd, kOr, kOne };
  struct Node {
    Kind kind;
    int atom = -1;
    std::vector<Id> parts{};
  };
  static constexpr Id kFalse = 0;
  static constexpr Id kTrue = 1;

  Expressions();

  Id constant(bool value) const { return value ? kTrue : kFalse; }
  Id atom(int number);
  Id negated(Id part);
  Id all_of(std::vector<Id> parts);
  Id any_of(std::vector<Id> parts);
  // Exactly one of them.
  Id one_of(std::vector<Id> parts);

  const Node& node(Id id) const { return nodes_[static_cast<std::size_t>(id)]; }
  // The numbers of the atoms below `id`, sorted.
  std::vector<int> atoms(Id id) const;
  // Whether it holds, given which atoms do.
  bool holds(Id id, const std::function<bool(int)>& atom_holds) const;

 private:
  Id add(Node node);

  std::vector<Node> nodes_;
};

}  // namespace bl
