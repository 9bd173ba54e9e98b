#pragma once
// Objects that only the interpreter makes. They have a header of their own so that text forms and
// operators can look inside.

#include <memory_resource>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace bl::jinja {

struct Binding {
  NameId name;
  Value value;
};

// The variables of a loop body, a macro, a with block and so on. Other names are looked up in the
// parent, and at last among the template's own variables (where parent is null).
struct Scope {
  Scope* parent;
  std::pmr::vector<Binding> bindings;

  void set(NameId name, const Value& value) {
    for (Binding& binding : bindings) {
      if (binding.name == name) {
        binding.value = value;
        return;
      }
    }
    bindings.push_back({name, value});
  }
};

struct NamespaceEntry {
  std::string_view name;
  Value value;
};

// namespace(), the only object that templates change.
struct Namespace {
  std::pmr::vector<NamespaceEntry> entries;

  const Value* find(std::string_view name) const {
    for (const NamespaceEntry& entry : entries) {
      if (entry.name == name) return &entry.value;
    }
    return nullptr;
  }
  void set(std::string_view name, const Value& value) {
    for (NamespaceEntry& entry : entries) {
      if (entry.name == name) {
        entry.value = value;
        return;
      }
    }
    entries.push_back({name, value});
  }
};

// Yields the items of a for loop one by one, so that its `if` sees what the body changed.
class LoopSource {
 public:
  virtual bool next(Value& item) = 0;
  // The number of all items, if it is known without taking them.
  virtual std::optional<std::size_t> known_length() const = 0;

 protected:
  ~LoopSource() = default;
};

// The variable `loop`.
struct Loop {
  Loop(Runtime& runtime, LoopSource* items, const ForStatement* what, Scope* around,
       std::int64_t depth)
      : rt(runtime),
        source(items),
        statement(what),
        scope(around),
        depth0(depth),
        ahead(runtime.vector()) {}

  Runtime& rt;
  LoopSource* source;
  const ForStatement* statement;
  Scope* scope;  // the scope around the loop
  std::int64_t depth0;
  std::int64_t index0 = -1;
  Value previous, current;
  ValueVector ahead;  // items taken from `source` but not yet seen by the body, from ahead_used on
  std::size_t ahead_used = 0;
  std::optional<std::int64_t> length;
  Value last_changed;
  bool over = false;  // the for statement has ended and `source` is gone

  // Moves to the next item; returns false at the end.
  bool advance();
  // Gets the item after the current one; returns false if there is none.
  bool peek(Value& item);
  std::int64_t get_length();
  // Returns loop.NAME, or kMissing if `loop` has no such name.
  Value attribute(std::string_view name);
};

}  // namespace bl::jinja
